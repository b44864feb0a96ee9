"""A topic of several partitions, and a relay's stores beside the pipeline, for tests that block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from anyio.from_thread import BlockingPortal, start_blocking_portal

from relay.core.instants import SECOND
from relay.core.outcomes import Verb
from relay.core.partitions import Layout, own_name
from relay.core.timers import Change
from relay.pipeline.rows.reading import Reading
from relay.pipeline.rows.writing import Load, WriteTally, write
from relay.pipeline.spark.redis_target import Target, TopicRules
from relay.store.server.server import Server
from relay.store.verbs import move
from tests.store.moving import Relay, nothing

if TYPE_CHECKING:
    from tests.servers import RunningServer

DUE = 4_000_000_000 * SECOND


class LaidOut:
    """The topic, and what a relay does to it. `nodes` are all servers that may have a partition of it."""

    def __init__(
        self, portal: BlockingPortal, relay: Relay, nodes: Sequence[RunningServer], target: Target
    ) -> None:
        self.topic, self.target = relay.topic, target
        self._portal, self._relay, self._nodes = portal, relay, nodes

    @property
    def layout(self) -> Layout:
        """As Redis has it."""
        return self._portal.call(self._relay.layouts.ask, self.topic)

    def begin(self, partitions: int) -> Layout:
        """Begin a move, by which nothing has moved yet."""
        return self._portal.call(self._relay.moves.begin, self.topic, partitions)

    def finish(self) -> None:
        """Move all that is left to be moved."""
        self._portal.call(self._relay.moves.run, self.layout, nothing)

    def move(self, partitions: int) -> None:
        while self.layout.count != partitions:
            self.begin(partitions)
            self.finish()

    def carry_some(self, partitions: int) -> None:
        """Begin a move, and carry a batch from the first of its partitions; another is noted and on its
        way."""
        layout = self.begin(partitions)
        partition = layout.emptied[0]
        names: list[str] = [
            name for names in self.homes().values() for name in names if layout.partition(name) == partition
        ]
        carrier, server = self._relay.carrier, self._relay.server
        self._portal.call(carrier.take, layout, partition, "t", names[:20])
        self._portal.call(server.call, move.leave(own_name(partition), "t", names[20:40]))

    def due(self, timer_ids: Sequence[str]) -> None:
        """Schedule these, which are due."""
        self._portal.call(lambda: self._relay.put(*timer_ids, due=SECOND // 2))

    def cancel(self, timer_id: str) -> bool:
        return self._portal.call(self._relay.cancel, timer_id) is not Change.GONE

    def deliver(self, nonce: bytes = b"d" * 16) -> set[str]:
        """Claim all that is due, and acknowledge it."""
        claimed = self._portal.call(self._relay.claim, nonce)
        self._portal.call(self._relay.end, claimed, Verb.ACK, nonce)
        return set(claimed)

    def lease(self) -> set[str]:
        return set(self._portal.call(self._relay.claim))

    def homes(self) -> dict[str, list[str]]:
        """The timers under each timeline's key, wherever they belong."""
        found: dict[str, list[str]] = {}
        for node in self._nodes:
            with node.client() as raw:
                keys: Any = raw.keys(f"timers_timeline:*{self.topic}*")
                for key in keys:
                    names: Any = raw.zrange(key, 0, -1)
                    found[key.decode()] = sorted(name.decode() for name in names)
        return found

    def assert_at_home(self, timer_ids: Sequence[str]) -> None:
        """Each of these lies in its partition, with a payload, and no other timer anywhere."""
        expected: dict[str, list[str]] = {}
        keys, layout = self._relay.server.keys, self.layout
        for timer_id in sorted(timer_ids):
            expected.setdefault(keys.key("timeline", layout.partition(timer_id)), []).append(timer_id)
        assert self.homes() == expected
        for node in self._nodes:
            with node.client() as raw:
                stored: Any = raw.keys(f"timers_payloads:*{self.topic}*")
                for key in stored:
                    fields: Any = raw.hkeys(key)
                    timeline = key.decode().replace("timers_payloads", "timers_timeline")
                    assert sorted(name.decode() for name in fields) == expected[timeline]

    # --------------------------------------------------------------- what a worker of Spark's does

    def load(self, *batches: Sequence[str] | Callable[[], object], **options: Any) -> WriteTally:
        """Write batches of ids as one task; between two batches, call what stands there."""

        def rows() -> Iterator[pa.RecordBatch]:
            for number, each in enumerate(batches):
                if callable(each):
                    each()
                    continue
                yield pa.RecordBatch.from_pydict(
                    {
                        "timer_id": pa.array(list(each), pa.string()),
                        "due_time": pa.array([DUE + number] * len(each), pa.timestamp("us", "UTC")),
                        "payload": pa.array([str(number)] * len(each), pa.string()),
                    }
                )

        tally = WriteTally()
        reading = Reading(self.target, {"topic": self.topic})
        assert not list(write(rows(), Load(reading, strict=True, **options), tally))
        return tally


@contextmanager
def laid_out(
    url: str, topic: str, nodes: Sequence[RunningServer], partitions: int = 8, *, born: bool = True
) -> Iterator[LaidOut]:
    """A topic that is to have `partitions` of them; a relay has asked for it already if it is `born`."""
    target = Target(url, default=TopicRules(partitions=partitions))
    with start_blocking_portal() as portal:
        server = portal.call(lambda: Server(url, connections=2, timeout=60.0))
        try:
            made = LaidOut(portal, Relay(server, topic, partitions), nodes, target)
            if born:
                assert made.layout.count == partitions
            yield made
        finally:
            portal.call(server.aclose)
