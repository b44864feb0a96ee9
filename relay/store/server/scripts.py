"""The Lua scripts: `timeline/claim` is the verb in `lua/timeline/claim.lua`; each is run by its digest."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from relay.core.partitions import under
from relay.store.keys import KeyNames
from relay.store.server.manifest import manifest, text_of, verbs

Argument = bytes | str | int | float

OnRefusedHint = Callable[[str], None]
"""Called with the reason why Redis refused the wake hint of a script call. The call itself has had its
effect."""

R = TypeVar("R")

PUBLISH = "PUBLISH"
"""What the scripts publish wake hints by, unless a Cluster has another command for it."""

MOST_HEADS = 10_000
"""The number of calls whose keys are kept: one for each set of keys and topic."""


class Call(NamedTuple, Generic[R]):
    """One call of a script: what it is to work on, and with which arguments. `relay.store.verbs` makes them.

    `read` makes a value of the script's reply; without it the reply stays as it is. `deadlines`: until when
    the caller of each timer waits (monotonic seconds), if several share the call. `hints`: the script may
    publish a wake hint, and takes the channel as its first argument, which is not among `args`. `group`,
    `consumer` and `run` are those of `KeyNames.key`. `by` is who asks for it, for the journal, if a person
    does.
    """

    verb: str
    topic: str
    args: Sequence[Argument]
    read: Callable[[Any], R] | None = None
    hints: bool = False
    group: str = ""
    consumer: str = ""
    run: str = ""
    deadlines: Sequence[float] = ()
    by: str = ""


class Script:
    """One verb's script, `+layout` for partitions of a topic that has one, and then `+journal` for topics
    that have one. `publish` is the command for wake hints. `guarded`: it names one key more if it changes
    something, one that does not exist.

    `keys` are the names of those that it takes. `writes`: it changes something, and is told until when it
    may. `shared`: several callers may share a call, and each of its timers has an end of its own.
    `journaled`: it changes timers, which a journal has to say.
    """

    def __init__(
        self, name: str, text: str | None = None, *, publish: str = PUBLISH, guarded: bool = False
    ) -> None:
        verb, *more = name.split("+")
        declared = manifest(verb)
        self.name = name
        self.writes = declared.writes
        absent = ("absent",) if guarded and self.writes else ()
        laid_out = ("layout", "move") if "layout" in more else ()
        journal = ("journal",) if "journal" in more else ()
        # lib/layout.lua and lib/journal.lua find theirs by their places from the end.
        self.keys = (*declared.keys, *absent, *laid_out, *journal)
        self.shared = "each_until" in declared.arguments
        self.journaled = declared.journaled
        self.text = source(name) if text is None else text
        if publish != PUBLISH:
            self.text = self.text.replace(f"'{PUBLISH}'", f"'{publish}'", 1)
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


@cache
def source(name: str) -> str:
    """The text of a script: `timeline/claim` is `lua/timeline/claim.lua`; before it stand
    `lua/lib/server/dialect.lua`, the locals that its manifest declares, `lua/lib/prelude.lua` and what it
    uses of `lua/lib`. `timeline/claim+layout+journal` has `lua/lib/journal.lua` and `lua/lib/layout.lua`
    behind the prelude. A script that changes something refuses late calls."""
    verb, *more = name.split("+")
    declared = manifest(verb)
    common = {"journal": "journal" in more, "given_up": declared.writes, "layout": "layout" in more}
    parts = ("prelude", *(part for part, wanted in common.items() if wanted), *declared.uses)
    shared = [text_of(f"lib/{part}") for part in parts]
    return "\n".join((text_of("lib/server/dialect"), declared.head(), *shared, text_of(verb)))


def variants(verb: str) -> tuple[str, ...]:
    """The names of a verb's scripts: by itself, for partitions of a topic with a layout unless it is about
    layouts as such, and each of them for topics with a journal."""
    laid_out = (f"{verb}+layout",) if "layout" not in manifest(verb).keys else ()
    names = (verb, *laid_out)
    return (*names, *(f"{name}+journal" for name in names if manifest(verb).journaled))


class Prepared(NamedTuple):
    """A call as Redis is to have it.

    `head` is how many keys there are, and the keys; `channel` that of wake hints, if the script takes it;
    `last` is the partition's number and layout, if the topic has one, and how many changes its journal keeps,
    with the relay's name and who asks, if it is `journaled`; `deadlines` and `topic` are those of the call.
    """

    script: Script
    keys: Sequence[str]
    head: tuple[Argument, ...]
    channel: tuple[str, ...]
    args: Sequence[Argument]
    last: tuple[Argument, ...]
    journaled: bool
    deadlines: Sequence[float]
    topic: str

    def lasting(
        self, deadline: float, at: Callable[[float], int], *, known: bool = True
    ) -> tuple[Argument, ...]:
        """The command of a call that is given up at `deadline`, and its timers at theirs, if those are
        sooner. `at` tells what the server's clock shows at a monotonic instant (seconds)."""
        each = b""
        if min(self.deadlines, default=deadline) < deadline:
            instants = [at(min(instant, deadline)) for instant in self.deadlines]
            each = struct.pack(f"<{len(instants)}d", *instants)
        return self.command(at(deadline), each, known=known)

    def command(self, until: int = 0, each: bytes = b"", *, known: bool = True) -> tuple[Argument, ...]:
        """What goes over the wire; the script's text where the server does not know its digest. `until` is
        the instant after which a script that changes something refuses it (microseconds, by the server's
        clock), `each` the same of each timer, packed."""
        how = ("EVALSHA", self.script.sha) if known else ("EVAL", self.script.text)
        lives: tuple[Argument, ...] = (until,) if self.script.writes else ()
        if self.script.shared:
            lives = (until, each)
        return (*how, *self.head, *lives, *self.channel, *self.args, *self.last)


class Scripts:
    """All scripts, each loaded when it is first called. Which keys a call works on is decided here.

    `texts` replaces scripts by other text, for tests that break them on purpose.
    """

    def __init__(
        self,
        names: KeyNames,
        texts: Mapping[str, str] | None = None,
        *,
        guarded: bool = False,
        relay: str = "",
    ) -> None:
        """`relay` is what journals call the relay; it has no spaces. `guarded`: they run in a Cluster. While
        a slot is moved key by key, Redis ends a script in the middle, with what it has written, when it
        removes a key's last member and then names the key again. It refuses whole what names a key that is
        not there (see 0081)."""
        self._names = names
        self._guarded = guarded
        self._relay = f" {relay}" if relay else ""
        self._texts = texts or {}
        self._publish = PUBLISH
        self._scripts: dict[str, Script] = {}
        self._heads = lru_cache(MOST_HEADS)(self._head)

    def load(self) -> None:
        """Load all of them now, so that no call waits for files, and one that is missing is noticed."""
        for verb in verbs():
            for name in variants(verb):
                self.named(name)

    def publish_by(self, command: str) -> None:
        """Have the scripts publish wake hints by this command."""
        if command != self._publish:
            self._publish = command
            self._scripts = {name: self._made(name) for name in self._scripts}

    def _made(self, name: str) -> Script:
        return Script(name, self._texts.get(name), publish=self._publish, guarded=self._guarded)

    def named(self, name: str) -> Script:
        """The script of this name."""
        script = self._scripts.get(name)
        if script is None:
            script = self._scripts[name] = self._made(name)
        return script

    def prepare(self, call: Call[Any], keep_of: Callable[[str], int]) -> Prepared:
        """`keep_of` tells how many changes a topic's journal keeps, 0 if it has none. It is asked where the
        call changes timers."""
        verb, topic, args, _, hints, group, consumer, run, deadlines, by = call
        script = self._scripts.get(verb) or self.named(verb)
        keep = keep_of(topic) if script.journaled else 0
        last: tuple[Argument, ...] = ()
        if laid_out := under(topic):
            verb, last = f"{verb}+layout", (laid_out,)
            script = self._scripts.get(verb) or self.named(verb)
        if keep:
            who = f"{self._relay or ' '} {by}" if by else self._relay
            script, last = self.named(f"{verb}+journal"), (*last, f"{keep}{who}" if who else keep)
        keys, head, channel = self._heads(script.keys, topic, hints, group, consumer, run)
        return Prepared(script, keys, head, channel, args, last, bool(keep), deadlines, topic)

    def _head(
        self, names: tuple[str, ...], topic: str, hints: bool, group: str, consumer: str, run: str
    ) -> tuple[tuple[str, ...], tuple[Argument, ...], tuple[str, ...]]:
        """The keys of these names, the same behind their number, and the channel of wake hints."""
        keys = tuple(self._names.key(name, topic, group=group, consumer=consumer, run=run) for name in names)
        channel = (self._names.channel(topic),) if hints else ()
        return keys, (len(keys), *keys), channel


def publish_command(*, is_sharded: bool) -> str:
    """The command that publishes wake hints; `is_sharded`: they are heard at the node with the topic only."""
    return f"S{PUBLISH}" if is_sharded else PUBLISH


def ignore(*_: object) -> None:
    """Do nothing: the observer, and the listener for refused hints, of a server that has none."""


def reply_of(reply: Any, on_refused_hint: OnRefusedHint) -> Any:
    """A script's own reply; `on_refused_hint` is told if Redis refused its wake hint. See `answer` in the
    prelude."""
    if isinstance(reply, list) and reply and reply[0] == b"UNHEARD":
        _, reason, reply = reply
        on_refused_hint(reason.decode(errors="replace"))
    return reply
