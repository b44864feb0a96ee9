"""What `relay doctor` says about what it sees: values in, lines out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Literal, TypeAlias

from relay.cli.terminal import output
from relay.core.dispatch import DispatchState
from relay.core.durability import Durability
from relay.core.instants import SECOND
from relay.core.partitions import Layout
from relay.core.policy import TopicPolicy
from relay.core.ports import Places
from relay.core.timers import TopicStats
from relay.settings import Settings
from relay.store.examine import ROUND_TRIPS, ServerFacts, SweepMarks
from relay.store.keys import KeyNames
from relay.store.server.fitness import NEEDS_CLUSTER, spares_timers
from relay.store.server.probing.commands import Feature, Lack

Result: TypeAlias = Literal["ok", "note", "wrong"]

CLOCK_APART = 1.0
SLOW = 0.010
OVERDUE = 60.0
"""Seconds beyond which a difference between two clocks is reported."""

NEARLY_FULL = 0.9


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    check: str
    result: Result
    message: str
    is_away: bool = False
    """Whether the finding says that Redis can't be reached."""
    figures: Mapping[str, object] = field(default_factory=dict, hash=False)
    """What the message says in figures, for programs: further fields of the line in JSON."""


def fitness(settings: Settings, facts: ServerFacts) -> Iterator[Finding]:
    """Compare what the server says about itself with what Relay needs."""
    if facts.policy == "noeviction":
        yield Finding("eviction", "ok", "maxmemory-policy is noeviction")
    elif spares_timers(facts.policy):
        words = (
            f"maxmemory-policy is {facts.policy}, which may drop keys with a time to live: no key that "
            "holds timers has one, and docs/how-to/redis.md says what the loss of the others costs; "
            "noeviction is better"
        )
        yield Finding("eviction", "note", words)
    else:
        allowed = settings.redis.allow_eviction
        advice = "redis.allow_eviction allows it" if allowed else "set it to noeviction; relays do not start"
        words = f"maxmemory-policy is {facts.policy}, which may drop timers: {advice}"
        yield Finding("eviction", "note" if allowed else "wrong", words)
    if not facts.place and is_nearly_full(facts):  # a Cluster's nodes are compared with each other
        share = facts.memory_used / facts.memory_limit
        yield Finding("memory", "note", f"{share:.0%} of maxmemory is used; a full Redis refuses new timers")
    yield _persistence(facts)
    if facts.one_of_several:
        yield Finding("cluster", "wrong", f"the server is {NEEDS_CLUSTER}")


def is_nearly_full(facts: ServerFacts) -> bool:
    """Whether a server has a `maxmemory` and has used most of it."""
    return bool(facts.memory_limit) and facts.memory_used > NEARLY_FULL * facts.memory_limit


def _persistence(facts: ServerFacts) -> Finding:
    if facts.writes_fail:
        return Finding(
            "persistence", "wrong", "the server's last write to disk failed: see its log, and its disk"
        )
    if facts.aof:
        return Finding(
            "persistence", "ok", "AOF: a crash of Redis loses what appendfsync allows, about a second"
        )
    if facts.snapshots is None:
        words = (
            "no AOF: a crash of Redis loses at least all since its last snapshot, and all if it makes none"
        )
    elif facts.snapshots:
        words = "snapshots only: a crash of Redis loses all since the last one, usually minutes"
    else:
        words = "neither AOF nor snapshots: a crash of Redis loses every timer"
    return Finding("persistence", "note", f"{words}; appendonly yes makes that a second")


def commands(lacks: Sequence[Lack]) -> Iterator[Finding]:
    """Report the commands that the server does not give. Without those for moves all works but a change of
    the number of partitions."""
    needed = [lack for lack in lacks if lack.purpose != Feature.MOVES.value]
    for lack in needed:
        ends = "; relays do not start" if lack.is_vital else ""
        yield Finding("commands", "wrong", f"{lack}{ends}")
    if not needed:
        others = ", ".join(lack.command for lack in lacks)
        besides = f", but for {others} {Feature.MOVES.value}" if others else ""
        yield Finding("commands", "ok", f"the server has all that Relay needs{besides}")


def durability(given: Mapping[str, str], replicas: int) -> Finding:
    """Report which levels the server can give: each with why it can't, empty if it can."""
    can = [level for level, lack in given.items() if not lack]
    words = f"an OK can mean {', '.join(('stored', *can))}"
    lacks = [lack.removeprefix("durability: ") for lack in given.values() if lack]
    lacks += [] if replicas else ["no replica is online"]
    return Finding("durability", "ok", "; ".join((words, *lacks)))


def not_durable(setting: str, lack: str) -> Finding:
    """Report a setting that asks for what the server can't give."""
    return Finding("durability", "wrong", f"{setting}{lack.removeprefix('durability')}; relays do not start")


def may_come_back(setting: str, level: Durability, facts: ServerFacts) -> Iterator[Finding]:  # see 0102
    """Report a setting that asks for replicas, at a master that Sentinel may replace."""
    if level.replicas and not facts.stops_alone:
        words = (
            f"{setting}: {level} outlives a failover only if a master that comes back alone takes no writes "
            "until Sentinel has made it a replica: set min-replicas-to-write to 1 on each server"
        )
        yield Finding("durability", "note", f"{words}; docs/how-to/redis.md says what it costs")


def clock(ahead: float) -> Finding:
    """Compare the clocks; `ahead` is the number of seconds by which this machine's clock is ahead of
    Redis."""
    if abs(ahead) > CLOCK_APART:
        way = "ahead of" if ahead > 0 else "behind"
        words = f"this machine's clock is {abs(ahead):.1f} s {way} that of Redis, by which timers are due"
        return Finding(
            "clock", "note", f"{words}; instants that are reckoned here are off by that: see to NTP"
        )
    return Finding("clock", "ok", f"this machine's and that of Redis are {abs(ahead) * 1000:.0f} ms apart")


def latency(trip: float) -> Finding:
    """Judge the latency; `trip` is a round trip in seconds."""
    slow = trip > SLOW
    words = f"a round trip takes {trip * 1000:.1f} ms (median of {ROUND_TRIPS})"
    return Finding(
        "latency", "note" if slow else "ok", words + ("; timers are late by two or so" if slow else "")
    )


def wake_hints(problems: Sequence[str]) -> Iterator[Finding]:
    """Report problems with wake hints, which Relay works without."""
    for problem in problems:
        words = "a timer that another relay stores may be late by max_polling_interval"
        yield Finding("wake hints", "note", f"{problem}; {words}")
    if not problems:
        yield Finding("wake hints", "ok", "are heard")


def dispatched(stats: TopicStats) -> Iterator[Finding]:
    """Report what is notable about a topic."""
    if stats.dead:
        words = f"{stats.topic!r} has {output.dead_letters(stats.dead)}"
        yield Finding(
            "dead", "note", f"{words}: relay dead list shows them, relay dead redrive brings them back"
        )
    if stats.paused_until is not None:
        yield Finding("paused", "note", f"{stats.topic!r} is paused, {stats.due} due: relay resume ends that")
        return
    age = (stats.now - stats.first) / SECOND if stats.first is not None and stats.due else 0.0
    if age > OVERDUE:
        yield Finding(
            "overdue",
            "wrong",
            f"{stats.topic!r} has {output.timers(stats.due)} due, the first for {age:,.0f} s: no application "
            "takes them, or too slowly; see that one has opened a stream for the topic, and its relay's log",
        )


def foreign(keys: Iterable[tuple[str, str, str]]) -> Iterator[Finding]:
    """Report keys that hold something else: each with what it holds and what belongs there."""
    for key, held, wanted in keys:
        words = f"{key} holds a {held} and should hold a {wanted}: move it away, or set another key prefix"
        yield Finding("keys", "wrong", words)


def partitions(
    layout: Layout, policy: TopicPolicy, stats: TopicStats, places: Places, beyond: int
) -> Iterator[Finding]:
    """Report what there is to say about a topic's partitions; `beyond` is the number of timers in those that
    it has no more."""
    if layout.epoch:
        yield partitioned(layout, places)
    if layout.epoch or stats.timers or stats.dead:  # else the topic is yet to be born
        yield from otherwise_set(layout, policy)
    yield from out_of_use(layout, beyond)


def out_of_use(layout: Layout, timers: int) -> Iterator[Finding]:
    """Report timers in partitions that a topic has no more."""
    if not timers:
        return
    words = f"{output.timers(timers)} of {layout.topic!r} in partitions that it has no more"
    why = "a failover has brought them back after a move, and nobody takes them there"
    more = 2 * max(layout.count, layout.towards)
    command = f"relay topics reshard {quote(layout.topic)} --partitions {more}"
    yield Finding("partitions", "note", f"{words}: {why}; {command} has them delivered")


def partitioned(layout: Layout, places: Places) -> Finding:
    """Report how many partitions a topic has, and in a Cluster how many of them each node has."""
    words = f"{layout.topic!r} has {output.partitions(layout.count)}"
    if layout.towards:
        towards = output.partitions(layout.towards)
        words = f"{layout.topic!r} moves from {layout.count} to {towards}, while relays run"
    nodes = Counter(place for place in map(places.of, layout.partitions) if place)
    where = ", ".join(f"{count} at {place}" for place, count in sorted(nodes.items()))
    result: Result = "note" if layout.towards else "ok"
    return Finding("partitions", result, f"{words}: {where}" if where else words)


def otherwise_set(layout: Layout, policy: TopicPolicy) -> Iterator[Finding]:
    """Report a topic whose setting names another number of partitions than it has or moves to. A setting of 1
    means nothing: it is the default."""
    comes, wished = layout.towards or layout.count, policy.partitions
    if wished in (1, comes):
        return
    words = f"{layout.topic!r} is set to have {wished} partitions, which is for new topics, and "
    words += f"moves to {comes}" if layout.towards else f"has {comes}"
    advice = f"relay topics reshard {quote(layout.topic)} --partitions {wished} changes that"
    yield Finding("partitions", "note", f"{words}: {advice}")


def unusable(stats: TopicStats, keys: KeyNames) -> Iterator[Finding]:
    """Report a topic from before there were partitions whose name relays do not take any more."""
    if "#" not in stats.topic:
        return
    words = f"{stats.topic!r} has a # in its name, which names partitions now, so relays refuse the topic"
    forget = f"redis-cli srem {quote(keys.topics)} {quote(stats.topic)}"
    if stats.timers or stats.dead:
        held = f"it still holds {output.timers(stats.timers)} and {output.dead_letters(stats.dead)}"
        advice = (
            "let a relay from before there were partitions deliver them, or schedule them again elsewhere"
        )
        yield Finding("names", "wrong", f"{words}; {held}: {advice}; then {forget}")
    else:
        yield Finding("names", "note", f"{words}; it is empty: {forget}")


def unfinished(topic: str, marks: SweepMarks, now: int) -> Iterator[Finding]:
    """Report a sweep that nobody works on; `now` by the clock of Redis."""
    silent = (now - marks.until) / SECOND
    if silent <= OVERDUE:
        return
    which = f"a sweep or a restore of {topic!r} over {marks.place}"
    command = f"relay pipeline sweep --cold {quote(marks.place)} --topic {quote(topic)}"
    again = f"run it again (a sweep: {command})"
    if now < marks.kept:
        yield Finding("sweeps", "note", f"{which} stopped {silent:,.0f} s ago and is not done: {again}")
        return
    words = f"{which} was given up, and what it left in Redis stays until the topic's next sweep: {again}"
    remove = "; ".join(f"redis-cli -c unlink {quote(key)}" for key in marks.keys)  # -c: to whichever node
    yield Finding("sweeps", "note", f"{words}, or remove it: {remove}")


def behind(topic: str, state: DispatchState) -> Iterator[Finding]:
    """Report what is notable about a topic's stream or list."""
    for group in state.groups:
        work = group.pending + (group.unread or 0)
        if work and not group.consumers:
            yield Finding(
                "groups",
                "wrong",
                f"the group {group.group!r} of {topic!r} has no consumer and {work} entries to take, and the "
                "stream keeps them: start its application, remove the group (XGROUP DESTROY), or bound the "
                "stream (stream.max_length)",
            )
        if group.overdue > OVERDUE:
            yield Finding(
                "groups",
                "wrong",
                f"the group {group.group!r} of {topic!r} has {output.timers(group.waiting)} waiting for "
                f"another try, the first due for {group.overdue:,.0f} s: no relay of the group takes them, "
                "or too slowly",
            )
    if state.ready:
        yield Finding(
            "lists",
            "note",
            f"{topic!r} has {state.ready} entries in its ready list: do its workers keep up?",
        )
