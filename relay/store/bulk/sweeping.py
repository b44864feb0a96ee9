"""What a sweep does in Redis: a topic's marks, the guarded load, and what a write to the cold store retires.

The scripts `bulk/marks`, `bulk/guarded_load`, `bulk/retire` say what they promise and which races they close.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct, pack
from typing import Any, NamedTuple, Self

from redis.exceptions import NoScriptError

from relay.core.errors import StoreRefused
from relay.core.instants import to_score
from relay.store.bulk.store import AHEAD, KEEP_ALL, Buffer, BulkStore
from relay.store.server.blocking import Argument, as_arguments, checked, encoded
from relay.store.server.scripts import Script, reply_of

LOAD, RETIRE, MARKS = "bulk/guarded_load", "bulk/retire", "bulk/marks"
VERBS = (LOAD, RETIRE, MARKS)

VERSION_DIGITS = 19
"""Of a version as the scripts compare it: they know no whole numbers of that size."""

RETIRING = 7 * 86_400
"""Seconds for which Redis remembers who retires; who comes later asks anew."""


class StalePlan(StoreRefused):
    """The marks that the plan was made under are gone, or another plan has them: what it has read is old."""


class Fenced(StoreRefused):
    """A sweep has finished this write in its writer's place."""


class HeldMarks(NamedTuple):
    """Marks that another has: its plan, where that one's cold store lies, and for how many microseconds it
    keeps them. 0: a plan of another store that nobody keeps, and that is not done."""

    micros: int
    plan: str
    place: str


class Marks(NamedTuple):
    """What a load has to show: the marks' epoch, and the plan that has them.

    `staging` goes before the batches' numbers in the ledger: plans of a store that was copied have the same
    numbers, and may find what a sweep of this one has left that was killed.
    """

    topic: str
    epoch: str
    plan: str
    staging: str = ""

    def name_of(self, batch: int | str) -> str:
        """A batch, or a part of one, as the ledger has it."""
        return f"{self.staging}:{batch}" if self.staging else str(batch)


class LoadRows(NamedTuple):
    """One batch as columns: `due` and `expires` in microseconds, `versions` one for each row or one for
    all."""

    batch: int | str
    timer_ids: Sequence[str | bytes]
    due: Sequence[int]
    envelopes: Sequence[bytes]
    versions: Sequence[int]
    expires: Sequence[int | None] = ()


class Loaded(NamedTuple):
    """What batches came to; `again` counts those that had been loaded before."""

    batches: int = 0
    loaded: int = 0
    live: int = 0
    marked: int = 0
    again: int = 0

    def plus(self, other: Loaded) -> Loaded:
        return Loaded(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def version_text(version: int) -> str:
    """As the scripts take it."""
    return f"{version:0{VERSION_DIGITS}d}"


def versions_text(versions: Sequence[int]) -> str:
    """Of a batch's rows: one behind the other, or once if all have the same."""
    return "".join(map(version_text, versions if len(set(versions)) > 1 else versions[:1]))


def expiries_text(expires: Sequence[int | None]) -> str:
    """Of each row the score at which it expires, or nothing, and a semicolon; '' where none is given."""
    if all(each is None for each in expires):
        return ""
    return "".join(f"{'' if each is None else max(to_score(each), 1e-6)!r};" for each in expires)


def text_head(size: int) -> bytes:
    """What stands before a text of so many bytes in MessagePack."""
    if size < 1 << 5:
        return bytes((0xA0 | size,))
    return pack(">BH", 0xDA, size) if size < 1 << 16 else pack(">BI", 0xDB, size)


class PackedRows(NamedTuple):
    """One batch by columns: scores, ids and envelopes are the texts of an array in MessagePack, one for each
    timer; its head is left to the call.

    `first` is the due time of its first timer, in microseconds. `versions` and `expires` are texts as
    `lua/bulk/guarded_load.lua` takes them: see `versions_text`, `expiries_text`.
    """

    batch: int | str
    size: int
    first: int
    scores: Buffer
    timer_ids: Buffer
    envelopes: Buffer
    versions: str
    expires: str = ""

    @classmethod
    def of(cls, rows: LoadRows) -> Self:
        """The same rows, packed one by one."""
        scores = _texts([repr(to_score(due)) for due in rows.due])
        columns = scores, _texts(rows.timer_ids), _texts(rows.envelopes)
        versions, expires = versions_text(rows.versions), expiries_text(rows.expires)
        return cls(rows.batch, len(rows.timer_ids), rows.due[0], *columns, versions, expires)

    def arguments(self) -> Iterator[Buffer]:
        """The last three of a call, as they go over the wire."""
        for column in (self.scores, self.timer_ids, self.envelopes):
            head = pack(">BH", 0xDC, self.size)
            yield b"$%d\r\n%b" % (len(head) + len(column), head)
            yield column
            yield b"\r\n"


def _texts(texts: Iterable[str | bytes]) -> bytes:
    raw = [encoded(text) if isinstance(text, str) else text for text in texts]
    return b"".join(part for text in raw for part in (text_head(len(text)), text))


class ScriptCall(NamedTuple):
    """A call of a script that takes a batch by columns: what stands before and behind these."""

    script: Script
    head: Sequence[Argument]
    rows: PackedRows
    last: Sequence[Argument]

    def encoded(self, *, known: bool) -> bytes:
        """As it goes over the wire; by the script's text where the server does not know it."""
        how = ("EVALSHA", self.script.sha) if known else ("EVAL", self.script.text)
        count = len(how) + len(self.head) + 3 + len(self.last)
        before, behind = as_arguments(*how, *self.head), as_arguments(*self.last) if self.last else b""
        return b"".join((b"*%d\r\n" % count, before, *self.rows.arguments(), behind))


class UnderWay:
    """Calls that are on their way over a `BulkStore`'s connection, `AHEAD` at most.

    `count` is given what each call returned.
    """

    def __init__(self, store: BulkStore, count: Callable[[Any], None]) -> None:
        self._store = store
        self._count = count
        self._calls: deque[ScriptCall] = deque()

    def make_room(self) -> None:
        """Wait until one more call may be sent; raises `StoreError`."""
        while len(self._calls) >= AHEAD:
            self._settle()

    def send(self, call: ScriptCall, *, known: bool = True) -> None:
        """Send it on its way."""
        self._store.line.send_packed(call.encoded(known=known), 1)
        self._calls.append(call)

    def flush(self) -> None:
        """Wait for all that are under way; raises `StoreError`."""
        while self._calls:
            self._settle()

    def _settle(self) -> None:
        call = self._calls.popleft()
        (reply,) = self._store.line.receive(1)
        if isinstance(reply, NoScriptError):
            # It now comes behind what is under way, and ledgers mind no order. A timer with a row in both
            # batches gets the row that comes first.
            self.send(call, known=False)
            return
        answer = checked(reply)
        if answer and isinstance(answer[0], list):
            answer = answer[0]  # of a topic with a journal, and what that has lost
        self._count(reply_of(answer, self._store.unheard))


class Loading:
    """The sweep's part of a `BulkStore`: the same connection, and the topic's journal if it has one."""

    def __init__(self, store: BulkStore) -> None:
        self._store = store
        self._kept: dict[str, int] = {}
        self._under_way = UnderWay(store, self._count)
        self.done = Loaded()
        """What all batches came to whose replies have come."""

    # -------------------------------------------------------------------- marks

    def open(
        self,
        topic: str,
        plan: str,
        driver: str,
        *,
        lock: int,
        ttl: int,
        epoch: str,
        store: str,
        place: str = "",
        take_over: bool = False,
    ) -> str | HeldMarks:
        """The marks' epoch: `epoch` if there were none, and from now on there are. Or whose they are. `lock`
        in microseconds, `ttl` in seconds; `store` is the cold store's name, `place` for people. `take_over`:
        the plan of another store that nobody keeps is given up."""
        args = (plan, driver, lock, ttl * 1000, epoch, store, place, "1" if take_over else "")
        word, *told = self._run(MARKS, topic, "open", *args)
        if word == b"OPEN":
            return str(told[0].decode())
        micros = int(told.pop(0)) if word == b"BUSY" else 0
        return HeldMarks(micros, *(each.decode() for each in told))

    def keep(self, topic: str, plan: str, driver: str, *, lock: int, ttl: int) -> bool:
        """Whether they are this driver's still, and for another `lock`."""
        return bool(self._run(MARKS, topic, "keep", plan, driver, lock, ttl * 1000)[0] == b"OK")

    def close(self, topic: str, plan: str, driver: str) -> bool:
        """Whether they were this driver's; there are none then."""
        return bool(self._run(MARKS, topic, "close", plan, driver)[0] == b"OK")

    # --------------------------------------------------------------------- load

    def load(self, marks: Marks, rows: PackedRows) -> None:
        """Insert the batch, once; `flush` tells that it is. Raises `StalePlan`, `StoreError`."""
        self._under_way.make_room()
        script, keys, last = self._scripted(LOAD, marks.topic)
        channel, name = self._store.keys.channel(marks.topic), marks.name_of(rows.batch)
        head: list[Argument] = [len(keys), *keys, channel, marks.epoch, marks.plan, name]
        head += rows.versions, rows.expires
        self._under_way.send(ScriptCall(script, head, rows, last))

    def skip(self, marks: Marks, batch: int | str) -> bool:
        """Whether the batch was loaded before; then it counts. Raises `StalePlan`, `StoreError`."""
        self.flush()
        key, entry = self._store.keys.marks_of(marks.topic), f"b{marks.plan}:{marks.name_of(batch)}"
        epoch, plan, done = self._store.line.ask("HMGET", key, "epoch", "plan", entry)
        if (epoch, plan) != (marks.epoch.encode(), marks.plan.encode()):
            raise StalePlan("the marks of this plan are gone; plan anew")
        if done is None:
            return False
        self.done = self.done.plus(Loaded(1, *_ENTRY.unpack(done))._replace(again=1))
        return True

    def flush(self) -> None:
        """Wait for all that is under way; raises `StalePlan`, `StoreError`."""
        self._under_way.flush()

    def _count(self, answer: Any) -> None:
        word, *counts = answer
        if word == b"STALE_PLAN":
            raise StalePlan("the marks of this plan are gone; plan anew")
        self.done = self.done.plus(Loaded(1, *counts)._replace(again=int(word == b"DONE")))

    # ------------------------------------------------------------------- retire

    def may_retire(self, topic: str, version: int, token: str) -> None:
        """Make `token` the one that may retire for the version's rows, and no other; nor may any for older
        ones, until they have asked anew."""
        key = self._store.keys.retiring_of(topic)
        own = version_text(version).encode()
        older = [name for name in self._store.line.ask("HKEYS", key) if name < own]
        if older:
            self._store.line.ask("HDEL", key, *older)
        self._store.line.ask("HSET", key, version_text(version), token)
        self._store.line.ask("EXPIRE", key, RETIRING)

    def has_retired(self, topic: str, version: int) -> None:
        """Nobody needs to retire for the version's rows any more."""
        self._store.line.ask("HDEL", self._store.keys.retiring_of(topic), version_text(version))

    def retire(self, topic: str, version: int, token: str, timer_ids: Sequence[str | bytes]) -> int:
        """Remove them from Redis; how many lived. Raises `Fenced`, `StoreError`. At most 500."""
        reply = self._run(RETIRE, topic, version_text(version), token, *timer_ids)
        if reply[0] == b"FENCED":
            raise Fenced("a sweep has finished this write to the cold store; nothing is left to do")
        return int(reply[1])

    # ------------------------------------------------------------------ scripts

    def _run(self, verb: str, topic: str, *args: Argument) -> Any:
        script, keys, last = self._scripted(verb, topic)
        command = (len(keys), *keys, *args, *last)
        self._store.line.send(("EVALSHA", script.sha, *command))
        (reply,) = self._store.line.receive(1)
        if isinstance(reply, NoScriptError):
            self._store.line.send(("EVAL", script.text, *command))
            (reply,) = self._store.line.receive(1)
        answer = checked(reply)
        return answer[0] if script.journal else answer

    def _scripted(self, verb: str, topic: str) -> tuple[Script, Sequence[str], Sequence[Argument]]:
        """The verb's script for the topic, its keys, and what it takes behind its other arguments."""
        keep = 0 if verb == MARKS else self._keep(topic)
        script = self._store.known(f"{verb}+journal" if keep else verb)
        keys = self._keys(verb, topic)
        return (script, (*keys, self._store.keys.of(topic)[-1]), (keep,)) if keep else (script, keys, ())

    def _keys(self, verb: str, topic: str) -> tuple[str, ...]:
        keys, marks = self._store.keys, self._store.keys.marks_of(topic)
        if verb == MARKS:
            return (marks,)
        first = keys.of(topic)[:3]
        return (*first, marks) if verb == LOAD else (*first, keys.retiring_of(topic), marks)

    def _keep(self, topic: str) -> int:
        """How many changes the topic's journal keeps; 0 if it has none."""
        if topic not in self._kept:
            there = self._store.line.ask("TYPE", self._store.keys.of(topic)[-1]) == b"stream"
            self._kept[topic] = self._store.journals.keep(topic) or (KEEP_ALL if there else 0)
        return self._kept[topic]


_ENTRY = Struct("<III")
"""The ledger's: loaded, live, marked."""
