"""What lies in Redis of a topic that is resharded, partition by partition."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from relay.core.instants import SECOND
from relay.core.partitions import Layout, partition_number
from relay.store.codec import envelope, lease_record
from tests.properties.resharding_seam import TOPIC, Nodes
from tests.properties.resharding_truth import State, Timer, Violation

Here = list[dict[str, State]]
"""What each partition has."""


def record(nodes: Nodes) -> Layout:
    """The topic's layout."""
    key, client = nodes.key("layout", 0), nodes.of(0)
    text = cast("bytes", client.get(key)) if client.type(key) == b"string" else b""
    return Layout.parse(TOPIC, (text or b"").decode())


def here(nodes: Nodes, count: int) -> Here:
    """What there is in so many partitions."""
    found: Here = []
    for number in range(count):
        client = nodes.of(number)
        states: dict[str, State] = {}
        timeline = client.zrange(nodes.key("timeline", number), 0, -1, withscores=True)
        for name, score in cast("Any", timeline):
            stored = cast("bytes", client.hget(nodes.key("payloads", number), name))
            raw = cast("bytes", client.hget(leases_of(nodes, number), name)) or b""
            states[name.decode()] = State(_timer(score, stored, raw))
        for _, fields in cast("Any", client.xrange(nodes.key("dead", number))):
            name = fields[b"timer_id"].decode()
            timer, letters = states.get(name, State(None))
            states[name] = State(timer, tuple(sorted((*letters, version(fields[b"envelope"])))))
        found.append(states)
    return found


def settled(nodes: Nodes, count: int, timer_ids: Collection[str]) -> dict[str, State]:
    """What there is of each id. Raises `Violation` unless the topic is at rest, and everything where it
    belongs."""
    layout, states = record(nodes), here(nodes, count)
    if layout.towards:
        raise Violation(f"the layout stays {layout.text}")
    homes = {each: partition_number(each, layout.count) for each in timer_ids}
    for number in range(count):
        _check(nodes, number)
        strangers = {each for each in states[number] if homes[each] != number}
        if strangers:
            raise Violation(f"{strangers} are left behind in {number}")
    return {each: states[home].get(each, State(None)) for each, home in homes.items()}


def _check(nodes: Nodes, number: int) -> None:
    client, key = nodes.of(number), nodes.key
    if client.hexists(key("move", number), "note"):
        raise Violation(f"a batch is on its way from {number} for ever")
    names = {*cast("list[bytes]", client.zrange(key("timeline", number), 0, -1))}
    stored = {*cast("list[bytes]", client.hkeys(key("payloads", number)))}
    leases = {*cast("list[bytes]", client.hkeys(leases_of(nodes, number)))}
    if names != stored or not leases <= names:
        raise Violation(f"in {number} there are timers {names}, payloads {stored} and leases {leases}")


def leases_of(nodes: Nodes, number: int) -> str:
    """The key of the lease records, which have another name in a topic without a layout."""
    return nodes.key("leases" if record(nodes).epoch else "layout", number)


def version(stored: bytes) -> int:
    """What stands in a content."""
    return int(envelope.decode(stored).payload)


def _micros(score: float) -> int:
    """The microsecond that a score stands for, on the publishers' grid or on Relay's own."""
    return round(score * SECOND - 0.3)


def _timer(score: float, stored: bytes, raw: bytes) -> Timer:
    lease = lease_record.read(raw) if raw else None
    if lease is None or lease.score != score:
        return Timer(version(stored), _micros(score), _micros(score))
    nonce = lease.nonce if lease.state == lease_record.LEASED else b""
    return Timer(version(stored), _micros(lease.due), _micros(score), nonce)
