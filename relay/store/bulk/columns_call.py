"""Calls of scripts that take a batch of timers by columns, several of them under way at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import pack
from typing import Any, NamedTuple, Self

from relay.core.errors import OtherLayout
from relay.core.instants import to_score
from relay.store.server.blocking import BlockingServer, as_arguments, is_refused
from relay.store.server.line import encoded
from relay.store.server.scripts import Call, Prepared

AHEAD = 3
"""Batches that are under way while the next one is made: Redis has work while a worker packs, or waits for a
core. A claim beside it waits for one of them, not for all: Redis turns to its clients one batch at a time."""

VERSION_DIGITS = 19
"""The digits of a version as the scripts compare it: they have no whole numbers of that size."""

Buffer = bytes | memoryview


class LoadRows(NamedTuple):
    """One batch as columns: `due` and `expires` are in microseconds, `versions` has one for each row or one
    for all."""

    batch: int | str
    timer_ids: Sequence[str | bytes]
    due: Sequence[int]
    envelopes: Sequence[bytes]
    versions: Sequence[int]
    expires: Sequence[int | None] = ()


def version_text(version: int) -> str:
    """As the scripts take it."""
    return f"{version:0{VERSION_DIGITS}d}"


def versions_text(versions: Sequence[int]) -> str:
    """Write the versions of a batch's rows: one after the other, or once if all have the same."""
    return "".join(map(version_text, versions if len(set(versions)) > 1 else versions[:1]))


def each_version_text(versions: Sequence[int]) -> str:
    """Write the versions of a batch's rows one after the other; those below 0 are blank, and so is all if no
    other is there."""
    if all(each < 0 for each in versions):
        return ""
    return "".join(" " * VERSION_DIGITS if each < 0 else version_text(each) for each in versions)


def expiries_text(expires: Sequence[int | None]) -> str:
    """Write for each row the score at which it expires, or nothing, and a semicolon; empty if none
    expires."""
    if all(each is None for each in expires):
        return ""
    return "".join(f"{'' if each is None else max(to_score(each), 1e-6)!r};" for each in expires)


def text_head(size: int) -> bytes:
    """Return what stands before a text of this size in MessagePack."""
    if size < 1 << 5:
        return bytes((0xA0 | size,))
    return pack(">BH", 0xDA, size) if size < 1 << 16 else pack(">BI", 0xDB, size)


class PackedRows(NamedTuple):
    """One batch by columns: scores, ids and envelopes are the texts of an array in MessagePack, one for each
    timer, which has each timer once; its head is left to the call.

    `partition` is the number of the one that has them all, `first` the due time of the first timer, in
    microseconds.
    `versions` and `expires` are texts as `lua/bulk/guarded_load.lua` takes them: see `versions_text`,
    `expiries_text`; `ops` and `moves` are such as `lua/bulk/apply.lua` does.
    """

    batch: int | str
    size: int
    first: int
    scores: Buffer
    timer_ids: Buffer
    envelopes: Buffer
    versions: str
    expires: str = ""
    partition: int = 0
    ops: str = ""
    moves: str = ""

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


class ColumnsCall(NamedTuple):
    """A call, and the batch that comes behind its arguments."""

    call: Prepared
    rows: PackedRows

    def encoded(self, until: int, *, known: bool) -> bytes:
        """As it goes over the wire, `until` as for `Prepared.command`; by the script's text where the server
        does not know it."""
        last = self.call.last
        before = self.call._replace(last=()).command(until, known=known)
        count = b"*%d\r\n" % (len(before) + 3 + len(last))
        behind = as_arguments(*last) if last else b""
        return b"".join((count, as_arguments(*before), *self.rows.arguments(), behind))


Elsewhere = Callable[[str], None]
"""Called with a partition's layout in the place of what a batch came to, if that is not the one by which the
batch was made: nothing was done with it."""


class _Sent(NamedTuple):
    """A call that is under way, and whom to tell what came of it."""

    call: ColumnsCall
    done: Callable[[Any], None]
    elsewhere: Elsewhere | None


class UnderWay:
    """Calls that are on their way to a server, or to nodes of a Cluster: `AHEAD` of them at most."""

    def __init__(self, server: BlockingServer) -> None:
        self._server = server
        self._calls: deque[_Sent] = deque()

    def send(
        self,
        call: Call[Any],
        rows: PackedRows,
        count: Callable[[Any], None],
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """Wait until one more call may be sent, and send it; `count` is called with its result, or
        `elsewhere`. Raises `StoreError`; `OtherLayout` if there is no `elsewhere`."""
        while len(self._calls) >= AHEAD:
            self._settle()
        made = ColumnsCall(self._server.prepare(call), rows)
        self._server.send_call(made)
        self._calls.append(_Sent(made, count, elsewhere))

    def flush(self) -> None:
        """Wait for all calls that are under way. Raises `StoreError`."""
        while self._calls:
            self._settle()

    def _settle(self) -> None:
        sent = self._calls.popleft()
        (reply,) = self._server.receive(1)
        if is_refused(reply):
            self._settle_refused(sent)
        else:
            self._tell(sent, reply)

    def _settle_refused(self, sent: _Sent) -> None:
        """Somebody had the server forget its scripts, or the topic's slot is moving or was moved. Let what is
        under way come to its end, and make again what was refused, in the same order.

        A call now comes behind those that were under way and not refused. Ledgers mind no order. Without one
        a timer with a row in two batches may get either of them.
        """
        refused = [sent]
        while self._calls:
            later = self._calls.popleft()
            (reply,) = self._server.receive(1)
            if is_refused(reply):
                refused.append(later)
            else:
                self._tell(later, reply)
        for each in refused:
            self._tell(each, self._server.run(each.call))

    def _tell(self, sent: _Sent, reply: Any) -> None:
        try:
            answer = self._server.reply_to(sent.call.call, reply)
        except OtherLayout as told:
            if sent.elsewhere is None:
                raise
            sent.elsewhere(told.layout)
        else:
            sent.done(answer)
