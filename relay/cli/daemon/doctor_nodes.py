"""What `relay doctor` says about the nodes of a Cluster, or about the one server, and about how the timers
are spread over them: values in, lines out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from shlex import quote

from relay.cli.daemon.doctor_findings import Finding, is_nearly_full
from relay.cli.terminal import output
from relay.core.dispatch import Dispatch
from relay.core.instants import SECOND
from relay.core.partitions import MAX_PARTITIONS, Layout, place_of
from relay.core.policy import TopicPolicy
from relay.store.census import Counted
from relay.store.examine import ServerFacts
from relay.store.server.cluster.slot_map import SLOTS

ENOUGH = 10_000
"""Timers of all nodes below which it does not matter where they are: delivering this many takes a server
0.14 s of its core."""

MOST_TOPICS = 5
"""How many of a node's topics its line names, those with the most timers first."""

MOST_PARTITIONS = 100
"""How many of a node's partitions its line in JSON has, those with the most timers first."""

HOTTEST = 5
"""How many partitions are named for having many timers, and how many for being overdue."""

PolicyOf = Callable[[str], TopicPolicy]


@dataclass(frozen=True)
class NodeLoad:
    """A node, or the one server, with the partitions that are there."""

    facts: ServerFacts
    partitions: Sequence[Counted]

    @cached_property
    def timers(self) -> int:
        """How many timers it has."""
        return sum(each.timers for each in self.partitions)

    @cached_property
    def by_topic(self) -> Counter[str]:
        """How many timers each topic has there, without topics that have none."""
        timers = Counter[str]()
        for each in self.partitions:
            timers[each.layout.topic] += each.timers
        return +timers

    def largest(self) -> list[Counted]:
        """The partitions that have timers, those with the most first."""
        return largest(self.partitions)


def missing(slots: Mapping[str, int], nodes: Sequence[ServerFacts]) -> Iterator[Finding]:
    """Report nodes of a Cluster that have slots and do not answer, and slots that no node has."""
    for place in sorted(slots.keys() - {facts.place for facts in nodes}):
        words = f"{place} has {slots[place]:,} slots and does not answer: the partitions there wait for it"
        figures = {"node": place, "slots": slots[place]}
        yield Finding("nodes", "wrong", words, is_away=True, figures=figures)
    homeless = SLOTS - sum(slots.values())
    if slots and homeless:
        words = f"no node has {homeless:,} of the {SLOTS:,} slots: topics there can't be used"
        yield Finding("nodes", "wrong", words)


def spread(nodes: Sequence[ServerFacts], counted: Sequence[Counted], policy: PolicyOf) -> Iterator[Finding]:
    """Report what each node has and holds, where that is out of proportion, and the hottest partitions."""
    loads = [NodeLoad(node, [each for each in counted if each.place == node.place]) for node in nodes]
    for load in loads:
        yield _node(load)
    if nodes[0].place:  # of a Cluster
        yield from _crowded(loads, policy)
        yield from _nearly_full(loads, policy)
    yield from hottest(counted)


def _node(load: NodeLoad) -> Finding:
    facts, here = load.facts, load.partitions
    unread = sum(each.stats is None for each in here)
    used, limit = output.size(facts.memory_used), output.size(facts.memory_limit)
    has = [f"{facts.slots:,} slots ({facts.slots / SLOTS:.0%})"] if facts.place else []
    has += [f"{used} of {limit} in use" if facts.memory_limit else f"{used} in use and no maxmemory"]
    has += [f"{facts.replicas} connected replica{'' if facts.replicas == 1 else 's'}"]
    has += [f"{output.partitions(len(here))} with {output.timers(load.timers)}{_largest_topics(load)}"]
    words = f"{facts.place or 'the server'} has {', '.join(has)}"
    words += f"; {output.partitions(unread)} can't be read" if unread else ""
    figures = {
        "node": facts.place,
        "slots": facts.slots,
        "memory_used": facts.memory_used,
        "memory_limit": facts.memory_limit,
        "replicas": facts.replicas,
        "partitions": len(here),
        "unread_partitions": unread,
        "timers": load.timers,
        "timers_by_partition": {
            place_of(each.partition): each.timers for each in load.largest()[:MOST_PARTITIONS]
        },
    }
    return Finding("nodes", "ok", words, figures=figures)


def _largest_topics(load: NodeLoad) -> str:
    """How many timers the largest topics have on a node, and in how many partitions if there are several."""
    parts = Counter(each.layout.topic for each in load.partitions)
    named = [
        f"{topic!r} {timers:,}" + (f" in {parts[topic]}" if parts[topic] > 1 else "")
        for topic, timers in load.by_topic.most_common(MOST_TOPICS)
    ]
    others = len(load.by_topic) - len(named)
    named += [f"{others} more"] if others else []
    return f" ({', '.join(named)})" if named else ""


def _crowded(loads: Sequence[NodeLoad], policy: PolicyOf) -> Iterator[Finding]:
    """Report nodes that have far more of the timers than of the slots.

    That is twice their share; or, since nobody has twice a half, their share and half of what the others
    should have. Below that it may be chance: of eight partitions one of three nodes has five or more in 26
    cases of 100, and six or more in 6.
    """
    total, slots = sum(load.timers for load in loads), sum(load.facts.slots for load in loads)
    for load in loads if total >= ENOUGH else ():
        part, share = load.timers / total, load.facts.slots / slots
        if part > min(2 * share, (1 + share) / 2):
            words = f"{load.facts.place} has {part:.0%} of all timers and {share:.0%} of the slots"
            advice = "; ".join(_ways(load, len(loads), policy))
            yield Finding("spread", "note", f"{words}: {advice}", figures={"node": load.facts.place})


def _nearly_full(loads: Sequence[NodeLoad], policy: PolicyOf) -> Iterator[Finding]:
    """Report nodes that have little memory left, and whether others have more."""
    full = [load for load in loads if is_nearly_full(load.facts)]
    for load in full:
        facts = load.facts
        share = facts.memory_used / facts.memory_limit
        words = f"{facts.place} uses {share:.0%} of its maxmemory; a full node refuses new timers"
        advice = ["no other node has room", "raise maxmemory, or add a node and move slots to it"]
        if len(full) < len(loads):
            advice = ["other nodes have room", *_ways(load, len(loads), policy)]
        yield Finding("memory", "note", "; ".join((words, *advice)), figures={"node": facts.place})


def _ways(load: NodeLoad, nodes: int, policy: PolicyOf) -> Iterator[str]:
    """How timers get from a node to others: those of its largest topic by more partitions, if it has more
    than half of them; others by slots, if there are several partitions."""
    for topic, timers in load.by_topic.most_common(1):
        layout = next(each.layout for each in load.partitions if each.layout.topic == topic)
        wanted = _more(layout, nodes, policy(topic))
        if wanted and 2 * timers > load.timers:
            command = f"relay topics reshard {quote(topic)} --partitions {wanted}"
            yield f"{command} spreads {topic!r}, which has most of them"
    filled = len(load.largest())
    if filled > 1:
        yield "moving slots to another node moves whole partitions"
    elif filled:
        yield "moving slots would move its one partition with timers as a whole"


def _more(layout: Layout, nodes: int, policy: TopicPolicy) -> int:
    """A number of partitions that spreads a topic better: twice as many as it has, and as there are nodes, at
    least. 0 if the topic moves already, or can't be moved."""
    if layout.towards or policy.dispatch is not Dispatch.LEASE:
        return 0
    wanted = max(2 * layout.count, 1 << (2 * nodes - 1).bit_length())
    return wanted if wanted <= MAX_PARTITIONS else 0


def largest(counted: Sequence[Counted]) -> list[Counted]:
    """The partitions that have timers, those with the most first."""
    return sorted((each for each in counted if each.timers), key=lambda each: each.timers, reverse=True)


def hottest(counted: Sequence[Counted]) -> Iterator[Finding]:
    """Name the partitions with the most timers, and those whose first timer has been due for longest. A
    paused one is not overdue."""
    late = sorted((each for each in counted if overdue(each)), key=overdue, reverse=True)
    hot = dict.fromkeys((*largest(counted)[:HOTTEST], *late[:HOTTEST]))
    for each in hot:
        name, waited, due = place_of(each.partition), overdue(each), each.stats.due if each.stats else 0
        words = f"{name!r} has {output.timers(each.timers)}" + (f" at {each.place}" if each.place else "")
        words += f", {due:,} of them due" if due else ""
        words += (
            f", the first for {waited:,.0f} s" if waited else ", and is paused" if is_paused(each) else ""
        )
        figures = {
            "partition": name,
            "topic": each.layout.topic,
            "node": each.place,
            "timers": each.timers,
            "due": due,
            "overdue_seconds": waited,
        }
        yield Finding("hottest", "ok", words, figures=figures)


def overdue(counted: Counted) -> float:
    """For how many seconds the first timer of a partition has been due; 0 if none is, or it is paused."""
    stats = counted.stats
    if stats is None or not stats.due or stats.first is None or is_paused(counted):
        return 0.0
    return (stats.now - stats.first) / SECOND


def is_paused(counted: Counted) -> bool:
    """Whether a partition is known to be paused."""
    return counted.stats is not None and counted.stats.paused_until is not None
