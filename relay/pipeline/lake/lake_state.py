"""What Relay remembers of a journal's lake. It travels with each commit of Relay's to the Delta table, as its
`userMetadata`, so that a change of rows and what is known about them are one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from relay.core.errors import InvalidField
from relay.store.journal.scan import Mark

FORMAT = "relay_journal"


@dataclass(frozen=True, slots=True)
class LakeState:
    """A lake at one version of its table.

    `version` is the table's, -1 if there is no table. `commits` counts those of Relay, and `compacted` is its
    value at the last compaction. `stored` has the last batch of each streaming query, `dropped` the number of
    records of each topic that retention removed, and `marks` says how far each stream reaches: `orders` is a
    topic or its first partition, `orders#1` the second one. `by` is a name that each commit has of its own.
    """

    version: int = -1
    commits: int = 0
    compacted: int = 0
    by: str = ""
    stored: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)

    def reached(self, marks: Mapping[str, Mark]) -> LakeState:
        """Return the state in which these streams reach this far, if they did not reach further."""
        further = {
            stream: mark
            for stream, mark in marks.items()
            if mark.place > self.marks.get(stream, _NOTHING).place
        }
        return replace(self, marks={**self.marks, **further})

    def told(self) -> str:
        """Return the state as the metadata of a commit."""
        told = asdict(self)
        del told["version"]
        told["marks"] = {stream: (mark.entry, mark.last) for stream, mark in self.marks.items()}
        return json.dumps({FORMAT: 1, **told})


_NOTHING = Mark()


def heard(metadata: str | None, version: int) -> LakeState | None:
    """Return what the metadata of this version says; None if it is not Relay's. Raises
    `InvalidField("lake", …)` for that of a newer Relay."""
    try:
        told = json.loads(metadata or "")
    except ValueError:
        return None
    if not isinstance(told, dict) or FORMAT not in told:
        return None
    if told.pop(FORMAT) != 1:
        raise InvalidField("lake", f"has a format that this Relay doesn't know, in version {version}")
    marks = {stream: Mark(*mark) for stream, mark in told.pop("marks").items()}
    return LakeState(version=version, marks=marks, **told)
