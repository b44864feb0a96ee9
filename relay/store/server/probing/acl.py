"""The smallest rights that each kind of work needs in Redis, by its scripts and their manifests."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum

from relay.core.dispatch import Dispatch
from relay.store.keys import KeyNames
from relay.store.server.manifest import manifest, verbs
from relay.store.server.probing.commands import BASE, TRIALS, Feature
from relay.store.server.scripts import source, variants

_CALLED = re.compile(r"redis\.p?call\('([A-Z]+)'")

FOLDERS = ("timeline", "people", "layout", "recur", "move", "subjects")
"""The folders of `lua/` whose scripts a relay runs."""

BEHIND: Mapping[Dispatch, str] = {Dispatch.LIST: "list", Dispatch.STREAM: "stream"}
"""The folder of what a topic needs besides whose due timers go on to there."""

SCHEDULING = (
    *(f"timeline/{verb}" for verb in ("schedule", "cancel", "run", "get", "list")),
    "subjects/keep",
    "people/record",  # of who has a timer run
)
"""The scripts of a relay whose applications only schedule."""

LOADING = ("timeline/list", "timeline/get", "layout/begin", "people/stats", "subjects/keep")
"""The scripts of a relay that jobs run as well as those of `lua/bulk`."""

CONNECTING = ("evalsha", "eval", "info", "ping", "time", "client|setname")
LISTENING = ("subscribe", "unsubscribe", "publish")
REGISTERING = ("sadd", "sscan", "set")
READING = (
    *("multi", "exec", "exists", "smembers", "hkeys", "hscan"),
    *("zrange", "zcount", "zcard", "xrange", "xrevrange"),
)
"""What jobs ask without a script: whether timers are there, marks, journals."""
RESEALING = ("get", "type", "hscan", "xrange")
"""What `relay seal` reads without a script: layouts, contents, dead letters."""


class AclJob(StrEnum):
    """What a user of Redis is for."""

    DAEMON = "daemon"
    """A relay."""
    PRODUCER = "producer"
    """A relay whose applications schedule and never take deliveries."""
    PIPELINE = "pipeline"
    """The jobs of `relay pipeline`."""
    SEALING = "sealing"
    """`relay seal status` and `relay seal rotate`."""


def rights(job: AclJob, names: KeyNames, dispatches: Collection[Dispatch] = ()) -> list[str]:
    """The rules of ACL SETUSER for a job: patterns of keys, the channel, commands. `dispatches` are those of
    the topics."""
    scripts = list(_scripts(job, dispatches))
    texts = [source(each) for script in scripts for each in variants(script)]
    commands = {name.lower() for text in texts for name in _CALLED.findall(text)}
    keys = {key for script in scripts for key in manifest(script).keys}
    if job is AclJob.SEALING:
        own = [each for each in _patterns(names, {*keys, "layout"}) if names.topics not in each]
        return [*own, *(f"+{command}" for command in sorted({*commands, *CONNECTING, *RESEALING}))]
    commands |= {*CONNECTING, *REGISTERING, "publish"}
    started = (Feature.TIMERS,) if job is AclJob.PRODUCER else BASE
    # Each refuses to start, or warns, without what it tries as it starts.
    commands |= {trial.partition(" ")[0].lower() for feature in started for trial in TRIALS[feature]}
    commands |= set(READING if job is AclJob.PIPELINE else LISTENING)
    patterns = _patterns(names, {*keys, "layout", "journal"})
    return [*patterns, f"&{names.wake}:*", *(f"+{command}" for command in sorted(commands))]


def _scripts(job: AclJob, dispatches: Collection[Dispatch]) -> Iterator[str]:
    folders = {*FOLDERS, *(BEHIND[each] for each in dispatches if each in BEHIND)}
    for script in verbs():
        folder = script.partition("/")[0]
        if (
            (job is AclJob.DAEMON and folder in folders)
            or (job is AclJob.PRODUCER and script in SCHEDULING)
            or (job is AclJob.PIPELINE and (folder == "bulk" or script in LOADING))
            or (job is AclJob.SEALING and folder == "reseal")
        ):
            yield script


def _patterns(names: KeyNames, keys: Iterable[str]) -> Sequence[str]:
    """Patterns of all topics' keys of these names, and of those that belong to no topic."""
    prefixes = {getattr(names, field.name) for field in fields(names) if field.type == "str"}
    found = {names.topics}
    for key in keys:
        whole = names.key(key, "t", group="g", consumer="c", run="r")
        found.add(max((each for each in prefixes if whole.startswith(f"{each}:")), key=len))
    return [f"~{names.topics}", *(f"~{prefix}:*" for prefix in sorted(found))]
