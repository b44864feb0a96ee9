"""Keeps a cold store small: many files of a topic become few, and rows that were taken are removed after a
while.

A compaction is a plan like a sweep's: it has the topic's next number, and if two want one number, one of them
is first. One that was killed leaves a plan that the next sweep gives up, and files that nobody names.
"""

from __future__ import annotations

from dataclasses import dataclass

from relay.core.instants import SECOND
from relay.pipeline.cold import staging
from relay.pipeline.cold.plans import COMPACTION, Plan, Plans, topics
from relay.pipeline.cold.store import VERSION_BITS, ColdStore, Write

KEEP = 7 * 86_400 * SECOND
"""Microseconds for which taken rows are kept, since a write that began earlier may still come."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The counts of an upkeep."""

    files_removed: int = 0
    writes_removed: int = 0
    plans_removed: int = 0


def compact(cold: ColdStore, topic: str, least: int) -> tuple[int, int] | None:
    """Rewrite the topic's resting files if there are at least `least`, without replaced and cancelled rows.
    Returns how many files there were and are; None if nothing was done, for instance because a plan is
    open."""
    mine = Plans(cold.files, topic)
    number = mine.following()
    writes = cold.writes()
    held = mine.holdings(writes)
    resting = held.resting_of(cold.settled(writes))
    if len(resting) < max(least, 2) or mine.plan(number) is not None:
        return None
    plan = Plan(number, topic, "", "", 0, resting, held.rivals(resting), COMPACTION)
    if not mine.begin(plan):
        return None
    latest = staging.latest(cold, plan).where(
        "due_us is not null"
    )  # a cancel has done its work on what rests
    added = cold.keep(latest, topic)
    if not mine.end(plan, {}, added):
        return None  # a sweep came meanwhile, and did not wait
    return len(resting), len(added)


def retain(cold: ColdStore, now: int, keep: int = KEEP) -> Kept:
    """Remove files that plans took from writes that began more than `keep` microseconds ago, unless a resting
    row still has to be compared with them. Then remove manifests that have no files left, and then plans that
    no manifest needs. The order matters: a manifest without the plan that took its files would bring them
    back."""
    writes = cold.writes()
    unsettled = {write.manifest for write in writes} - {write.manifest for write in cold.settled(writes)}
    waiting = min((write.version for write in writes if write.manifest in unsettled), default=1 << 62)
    limit = min((now - keep) << VERSION_BITS, waiting)
    files = manifests = begun = 0
    taken = {topic: Plans(cold.files, topic) for topic in topics(cold, writes)}
    over = {name for mine in taken.values() for name in mine.holdings(writes).over}
    for write in writes:
        if write.version >= limit or write.manifest in unsettled:
            continue
        old = [file.name for file in write.files if file.name in over]
        files += sum(cold.files.remove(name) for name in old)
        if len(old) == len(write.files):
            _forget(cold, write)
            manifests += 1
    needed = {file.name for write in cold.writes() for file in write.files}
    for mine in taken.values():
        begun += _forget_plans(cold, mine, needed, over, limit)
    return Kept(files_removed=files, writes_removed=manifests, plans_removed=begun)


def _forget(cold: ColdStore, write: Write) -> None:
    cold.files.remove(f"commits/{write.manifest}")
    cold.files.remove(f"settled/{write.manifest}")
    cold.files.remove(f"data/{write.name}")


def _forget_plans(cold: ColdStore, mine: Plans, needed: set[str], over: set[str], limit: int) -> int:
    """Return plans before the last that took nothing that is still named, and added nothing that is still
    needed.

    Files that a remaining plan has added are named, too: without the later plan that took them, they would
    rest again.
    """
    done = mine.all_done()
    removed = 0
    for number in sorted(done)[:-1]:
        each = done[number]
        added = each.get("added", [])
        if needed & set(each["consumed"]) or any(
            file["name"] not in over or file["newest"] >= limit for file in added
        ):
            needed = needed | {file["name"] for file in added}
            continue
        for file in added:
            cold.files.remove(file["name"])
        mine.remove(number)
        removed += 1
    return removed


def orphans(cold: ColdStore, age: float, now: float) -> int:
    """Remove folders that no manifest and no plan names and that are older than `age` seconds: killed jobs
    left them. `now` is in unix seconds."""
    writes = cold.writes()
    named = {write.name for write in writes}
    known = topics(cold, writes)
    for topic in known:
        mine = Plans(cold.files, topic)
        for done in mine.all_done().values():
            named |= {file["name"].split("/")[1] for file in done.get("added", [])}
    removed = 0
    for name in cold.files.names("data"):
        if name not in named and cold.files.age(f"data/{name}", now) > age:
            cold.files.remove(f"data/{name}")
            removed += 1
    return removed + sum(_forget_staged(cold, topic) for topic in known)


def _forget_staged(cold: ColdStore, topic: str) -> int:
    """Remove staged rows of plans that are over. A job that still loads them notices it."""
    following, folder = Plans(cold.files, topic).following(), staging.folder_of(topic)
    old = [name for name in cold.files.names(folder) if int(name.partition("-")[0]) < following]
    for name in old:
        cold.files.remove(f"{folder}/{name}")
    return len(old)
