"""The content of a lake as a log: each change is a numbered file that is created only if it is absent.

    LAKE/log/00000017.json     what version 17 added and removed, and how far a stream has come by then
    LAKE/data/…                folders of Parquet, each of one attempt; one that no version names does not
    count

A reader folds the versions. So it sees all of a change or nothing, an attempt that died leaves only a folder
that nobody names, and if two write the same version, one of them starts over.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from relay.core.errors import InvalidField
from relay.pipeline.spark.files import Files

WHOLE = 32
"""Every version with a multiple of this number holds the whole state, so that no reader goes back further."""

LOG = "log"


@dataclass(frozen=True, slots=True)
class Share:
    """A folder's content of one stream; `last` is the number of its last change."""

    records: int
    gaps: int
    first_entry: str
    last_entry: str
    last: int


@dataclass(frozen=True, slots=True)
class LakePart:
    """One folder of the lake. `level` counts the compactions of its rows; hours are as in the table. `topics`
    has a share for each stream: `orders` is a topic or its first partition, `orders#1` the second one."""

    folder: str
    level: int
    first_hour: str
    last_hour: str
    topics: dict[str, Share]

    @property
    def records(self) -> int:
        return sum(share.records for share in self.topics.values())


@dataclass(frozen=True, slots=True)
class LakeState:
    """A lake at one version.

    `stored` has the last batch of each stream, `dropped` the number of records of each topic that retention
    removed, and `marks` says how far each stream reaches: entry and number.
    """

    version: int = -1
    parts: tuple[LakePart, ...] = ()
    stored: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    marks: dict[str, tuple[str, int]] = field(default_factory=dict)

    def holds(self, folders: set[str]) -> bool:
        """Whether all of these folders are there."""
        return folders <= {part.folder for part in self.parts}


@dataclass(frozen=True, slots=True)
class LakeChange:
    """The change of a version, and `why` it was made: batch, import, compact, retain."""

    why: str
    add: tuple[LakePart, ...] = ()
    remove: tuple[str, ...] = ()
    stored: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)

    def on(self, state: LakeState) -> LakeState:
        """Return the state after the change."""
        marks = dict(state.marks)
        for part in self.add:
            for topic, share in part.topics.items():
                known = marks.get(topic, ("", 0))
                if _place(share.last_entry) > _place(known[0]):
                    marks[topic] = (share.last_entry, share.last)
        dropped = dict(state.dropped)
        for topic, count in self.dropped.items():
            dropped[topic] = dropped.get(topic, 0) + count
        return replace(
            state,
            version=state.version + 1,
            parts=(*(part for part in state.parts if part.folder not in self.remove), *self.add),
            stored={**state.stored, **self.stored},
            dropped=dropped,
            marks=marks,
        )


class Log:  # see 0055
    """The versions of one lake."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def state(self) -> LakeState:
        """Return the newest version. Raises `InvalidField("lake", …)` for a log that is not Relay's or not
        whole."""
        names = [name for name in self._files.names(LOG) if name.endswith(".json")]
        changes: list[LakeChange] = []
        for name in reversed(names):
            told = self._read(name)
            if told.get("state") is not None:
                state = _state(told["state"])
                break
            changes.append(_change(told))
        else:
            state = LakeState()
        for change in reversed(changes):
            state = change.on(state)
        if names and names[-1] != _name(state.version):
            raise InvalidField(
                "lake", f"{self._files.at(LOG)} is not whole: versions before {names[-1]} are missing"
            )
        return state

    def commit(self, change: Callable[[LakeState], LakeChange | None]) -> LakeState | None:
        """Make a change on top of the newest version; return None if `change` finds that there is nothing to
        do.

        `change` is called again whenever somebody else was faster.
        """
        while True:
            state = self.state()
            made = change(state)
            if made is None:
                return None
            after = made.on(state)
            told: dict[str, Any] = {"format": 1, **asdict(made), "state": None}
            if after.version % WHOLE == 0:
                told["state"] = asdict(after)
            if self._files.publish(f"{LOG}/{_name(after.version)}", json.dumps(told)):
                return after

    def removed(self, now: float, grace: float) -> set[str]:
        """Return the folders that were removed within the last `grace` seconds: somebody may still read
        them."""
        names = [f"{LOG}/{name}" for name in self._files.names(LOG) if name.endswith(".json")]
        young = [name for name in names if self._files.age(name, now) <= grace]
        return {folder for name in young for folder in self._read(name.removeprefix(f"{LOG}/"))["remove"]}

    def prune(self, now: float, grace: float) -> None:
        """Remove versions that nobody has to read any more, and that are older than `grace` seconds."""
        names = [name for name in self._files.names(LOG) if name.endswith(".json")]
        newest = max((name for name in names if int(name[:-5]) % WHOLE == 0), default="")
        for name in names:
            if name < newest and self._files.age(f"{LOG}/{name}", now) > grace:
                self._files.remove(f"{LOG}/{name}")

    def _read(self, name: str) -> dict[str, Any]:
        text = self._files.read(f"{LOG}/{name}")
        try:
            told: dict[str, Any] = json.loads(text or "")
        except ValueError:
            problem = f"{self._files.at(LOG)}/{name} is not a version of a journal lake"
            raise InvalidField("lake", problem) from None
        if told.get("format") != 1:
            problem = f"{self._files.at(LOG)}/{name} has a format that this Relay doesn't know"
            raise InvalidField("lake", problem)
        return told


def _name(version: int) -> str:
    return f"{version:010d}.json"


def _place(entry: str) -> tuple[int, int]:
    head, _, tail = entry.partition("-")
    return (int(head), int(tail or 0)) if head else (-1, 0)


def _part(told: dict[str, Any]) -> LakePart:
    return LakePart(**{**told, "topics": {topic: Share(**share) for topic, share in told["topics"].items()}})


def _change(told: dict[str, Any]) -> LakeChange:
    names = ("why", "stored", "dropped")
    return LakeChange(
        **{name: told[name] for name in names},
        add=tuple(map(_part, told["add"])),
        remove=tuple(told["remove"]),
    )


def _state(told: dict[str, Any]) -> LakeState:
    marks = {topic: (entry, last) for topic, (entry, last) in told["marks"].items()}
    return LakeState(**{**told, "parts": tuple(map(_part, told["parts"])), "marks": marks})
