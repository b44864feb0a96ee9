"""The names of all Redis keys and channels, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from relay.core.errors import StoreRefused
from relay.core.partitions import Layout, place_of, under

FIRST = "#0"
"""How the name of a topic's first partition ends; that part is in no key but one."""

CALENDARS = "calendars"
"""What stands in a topic's place in a call about calendars, which belong to no topic."""

ACTIONS = "actions"
"""The same in a call about the action log."""

ALIVE = "relays"
"""The same of the relays that live."""

RECURRENCES = ("rules", "standings", "ticks", "names")
"""The keys of a partition's recurrences: what is to recur, where it stands, when to look at it, and all ids
in order."""


@dataclass(frozen=True, slots=True)
class KeyNames:
    """The prefixes; a topic's key is `prefix:topic`.

    With `hash_tags` it is `prefix:{topic}`: a Redis Cluster keeps in one slot what shares the part
    in braces. Neither prefixes nor topics contain any.

    A partition's name may stand in a topic's place; see `relay.core.partitions`. The keys of a topic's first
    partition are those of the topic, and the others' have `topic#3` in the topic's place. Only the key of the
    lease records has the number once more: under its plain name lies the layout, so that a relay that knows
    nothing of it is refused by its scripts, which find a string where they want a hash.
    """

    timeline: str = "timers_timeline"
    payloads: str = "timers_payloads"
    leases: str = "timers_leases"
    dead: str = "timers_dead"
    pause: str = "timers_pause"
    journal: str = "timers_journal"
    marks: str = "timers_marks"
    retiring: str = "timers_retiring"
    ledger: str = "timers_ledger"
    ready: str = "timers_ready"
    processing: str = "timers_processing"
    taken: str = "timers_taken"
    stream: str = "timers_stream"
    retries: str = "timers_retries"
    group: str = "timers_group"
    topics: str = "timers_topics"
    wake: str = "timers_wake"
    hash_tags: bool = False

    def of(self, topic: str) -> tuple[str, str, str, str, str, str]:
        """Those of every topic: timeline, payloads, leases, dead letters, pause, journal."""
        tag = self._tag(topic)
        return (
            f"{self.timeline}:{tag}",
            f"{self.payloads}:{tag}",
            self.key("leases", topic),
            f"{self.dead}:{tag}",
            f"{self.pause}:{tag}",
            f"{self.journal}:{tag}",
        )

    def key(self, name: str, topic: str, *, group: str = "", consumer: str = "", run: str = "") -> str:
        """One key of a topic, by the name that the scripts' headers have for it. `group` is one of those that
        read the topic's stream, `consumer` one of its readers, `run` a load's; none has a colon, so that no
        two of two topics meet in one key. `absent` is a key that nobody ever writes, `layout` the one that
        holds the layout that the partition has seen last, `move` what is on its way from it or to it,
        `applied` is the ledger of a stream's newest batch, `even` and `odd` have the versions of rows that
        loads have applied, `relays` which relays poll the topic, `sealed` is there if its contents are to be,
        `subjects` has the keys of its subjects and `cold` what rests outside Redis, in the topic's own place,
        `copy` is a copy of dead letters in the making, and `written` is never there (see `lib/written.lua`);
        recurrences have those of `RECURRENCES`."""
        if name in ("pace", "calendars", "actions", "policy"):  # of no topic
            return str(getattr(self, name))
        if name == "absent":  # for the script that is about no topic, beside its only key
            return f"{self.topics}:absent:{self._tag(topic or self.pace)}"
        if name == "leases":
            number = under(topic).partition(" ")[0]
            return f"{self.leases}:{self._tag(topic)}{number and f'#{number}'}"
        if name == "layout":
            return f"{self.leases}:{self._tag(topic)}"
        if name == "first":
            return f"{self.leases}:{self._tag(topic)}{FIRST}"
        # Under a prefix that the user of every relay may write.
        if name in ("move", "relays", "written", "sealed", "subjects", "cold", *RECURRENCES):
            return f"{self.leases}:{self._tag(topic)}#{name}"
        if name == "copy":
            return f"{self.dead}:{self._tag(topic)}#{name}"
        if name in ("even", "odd"):  # beside a topic's ledgers, of whom none has such a run
            return f"{self.ledger}:~{name}:{self._tag(topic)}"
        of_group = f"{group}:" if name in ("retries", "group", "latest") else ""
        if name == "applied":  # a stream is a run, whose ledger is a hash
            name = "ledger"
        of_run = f"{run}:" if name == "ledger" else ""
        of_consumer = f"{consumer}:" if name == "latest" else ""
        return f"{getattr(self, name)}:{of_group}{of_consumer}{of_run}{self._tag(topic)}"

    def read_layout(self, topic: str, text: bytes | str) -> Layout:
        """The layout that a text under the topic's `layout` says. Raises `StoreRefused` for one that is not a
        layout."""
        try:
            return Layout.parse(topic, text if isinstance(text, str) else text.decode(errors="replace"))
        except ValueError as problem:
            raise StoreRefused(f"{self.key('layout', topic)}: {problem}") from None

    def lock(self, name: str, topic: str = "") -> str:
        """The key of a lock that relays share; one of a topic may be in the topic's slot."""
        return f"{self.topics}:{name}:{self._tag(topic)}" if topic else f"{self.topics}:{name}"

    def channel(self, topic: str) -> str:
        """The pub/sub channel of the topic's wake hints."""
        return f"{self.wake}:{self._tag(topic)}"

    @property
    def latest(self) -> str:
        """The prefix of what a consumer's latest claim has taken: that of its group, so that whoever may use
        the one may use the other."""
        return self.group

    @property
    def pace(self) -> str:
        """The key by which bulk loads take turns."""
        return f"{self.topics}:pace"

    @property
    def calendars(self) -> str:
        """The key of all calendars."""
        return f"{self.topics}:{self._tag(CALENDARS)}"

    @property
    def actions(self) -> str:
        """The key of the action log."""
        return f"{self.topics}:{self._tag(ACTIONS)}"

    @property
    def alive(self) -> str:
        """The key of the relays that live."""
        return f"{self.topics}:{self._tag(ALIVE)}"

    @property
    def policy(self) -> str:
        """The key of the digest of the policy that was recorded last; beside the record."""
        return f"{self.topics}:policy:{self._tag(ACTIONS)}"

    def _tag(self, topic: str) -> str:
        name = place_of(topic).removesuffix(FIRST)
        return f"{{{name}}}" if self.hash_tags else name
