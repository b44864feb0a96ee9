"""A disk under a server: it loses power, is slow, or is full.

The model is that of `disk.c`, which is loaded into the server: a file's bytes are on the disk when an fsync
that began after they were written has returned. A name is on the disk when the file was synced under it, or
its directory was. So a power loss undoes all writes, new files, renames and removals that nobody has synced,
and what is left of a file may end within a record. It is the worst that POSIX allows, with these exceptions:

- directories themselves, and a file's new length where it was cut, are on the disk at once;
- bytes that are written over others in place are seen as on the disk. Redis 6.2 does that with `nodes.conf`
  alone; later servers and all other files append, or write a new file and rename it;
- a part of what was not synced may be on the disk all the same, from the front and without holes
  (`torn`).

The file `log` of the server is on no disk, for the judge reads it; see 0087.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import tempfile
import time
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import Random
from typing import Self

from chaos.under.preloaded import compiled, preload
from tests.servers import RunningServer

SHIM = Path(__file__).with_name("disk.c")
FIELDS = ("sync_us", "write_us", "limited", "room", "syncs", "refused", "slowed", "loaded")
"""Those of `struct control` in disk.c, each an int64."""
LOG_OF_THE_SERVER = "log"


@dataclass
class Lost:
    """What a power loss took. Sizes are bytes."""

    cut: dict[str, int] = field(default_factory=dict)
    """How much each file has lost at its end, by its name."""
    gone: set[str] = field(default_factory=set)
    """Names that were new."""
    back: set[str] = field(default_factory=set)
    """Names that were removed, or that named another file."""
    safe: float = inf
    """What the server had written before this moment (monotonic seconds) is there."""

    @property
    def bytes(self) -> int:
        """How much was cut from all files together."""
        return sum(self.cut.values())


@dataclass
class Synced:
    """How many bytes of one file are on the disk, and when the fsync began that put them there (monotonic
    seconds)."""

    size: int = 0
    began: float = 0.0


class Disk:
    """The disk that has a server's directory. `Disk.under` puts it there."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._side = Path(tempfile.mkdtemp(prefix=f"{self.root.name}-disk-", dir=self.root.parent))
        self._inodes, self._log = self._side / "inodes", self._side / "log"
        control = self._side / "control"
        control.write_bytes(bytes(8 * len(FIELDS)))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), 0)
        self._all_is_synced()

    @classmethod
    def under(cls, server: RunningServer) -> Self:
        """Put a disk under a server. The server is restarted for that, with what its directory has.

        Raises ToolMissing without a compiler, and RuntimeError if the server loads no libraries: it is linked
        statically."""
        library = compiled(SHIM)
        server.shut_down()
        disk = cls(server.directory)
        preload(server.environment, library)
        server.environment |= disk.environment
        server.start()
        if not disk._get("loaded"):
            raise RuntimeError(f"{server.kind} loads no libraries: no disk can be put under it")
        return disk

    @property
    def environment(self) -> dict[str, str]:
        """By which the library finds this disk."""
        return {"RELAY_DISK": str(self._side), "RELAY_DISK_ROOT": str(self.root)}

    def close(self) -> None:
        """Remove what stands beside the server's directory. The server has ended."""
        self._control.close()
        shutil.rmtree(self._side, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------- slow and full

    def slow(self, *, sync: float = 0.0, write: float = 0.0) -> None:
        """Delay each fsync by `sync` seconds and each write by `write` seconds; those under way are not."""
        self._set("sync_us", round(sync * 1e6))
        self._set("write_us", round(write * 1e6))

    def fill(self, room: int = 0) -> None:
        """Leave room for `room` bytes: a write that has none fails with ENOSPC, one that has too little is
        short. Removing files makes no room."""
        self._set("room", room)
        self._set("limited", 1)

    def heal(self) -> None:
        """Fast, and with room for all. Ends the calls that are slow at the moment."""
        for name in ("sync_us", "write_us", "limited"):
            self._set(name, 0)

    @property
    def syncs(self) -> int:
        """How many fsyncs have returned, since the disk is there."""
        return self._get("syncs")

    @property
    def refused(self) -> int:
        """How many writes found no room."""
        return self._get("refused")

    @property
    def slowed(self) -> int:
        """How many calls were made slower, those under way included."""
        return self._get("slowed")

    def _set(self, name: str, value: int) -> None:
        struct.pack_into("q", self._control, 8 * FIELDS.index(name), value)

    def _get(self, name: str) -> int:
        value: int = struct.unpack_from("q", self._control, 8 * FIELDS.index(name))[0]
        return value

    # ---------------------------------------------------------------------- power loss

    def lose_power(self, torn: Random | None = None) -> Lost:
        """Leave of the directory what was synced. The server was killed before, with SIGKILL, and has ended.

        `torn`: a part of what was not synced is on the disk all the same, by this chance.
        """
        synced, names = self._on_the_disk()
        lost = Lost()
        for name, inode in self._names().items():
            if names.get(name) != inode:
                (self.root / name).unlink()
                lost.gone.add(name)
        for name, inode in names.items():
            path, kept = self.root / name, self._inodes / str(inode)
            if not path.exists():
                path.hardlink_to(kept)
                lost.back.add(name)
            written = path.stat().st_size
            on_disk = synced.get(inode, Synced())
            left = min(on_disk.size, written)
            if left < written:
                lost.safe = min(lost.safe, on_disk.began)
            if torn is not None:
                left = torn.randint(left, written)
            if left < written:
                lost.cut[name] = written - left
                os.truncate(path, left)
        self._all_is_synced()
        return lost

    def _names(self) -> dict[str, int]:
        """The inode of each file in the directory, by its name."""
        files = (path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink())
        named = {str(path.relative_to(self.root)): path.stat().st_ino for path in files}
        named.pop(LOG_OF_THE_SERVER, None)
        return named

    def _on_the_disk(self) -> tuple[dict[int, Synced], dict[str, int]]:
        """What the log says: what is on the disk of each inode, and which inode each name has."""
        synced: dict[int, Synced] = {}
        names: dict[str, int] = {}
        for line in self._log.read_text(encoding="utf-8").split("\n")[:-1]:
            kind, rest = line[0], line[2:]
            if kind == "N":
                directory, *entries = rest.split("\t")
                inside = [each for each in names if each.rpartition("/")[0] == directory]
                for name in inside:
                    del names[name]
                for entry in entries:
                    inode, name = entry.split(" ", 1)
                    rename(names, int(inode), f"{directory}/{name}" if directory else name)
            elif kind == "C":
                inode, size = rest.split(" ")
                file = synced.setdefault(int(inode), Synced())
                file.size = min(file.size, int(size))
            else:
                inode, size, began, name = rest.split(" ", 3)
                synced[int(inode)] = Synced(int(size), int(began) / 1e6)
                rename(names, int(inode), name)
        return synced, names

    def _all_is_synced(self) -> None:
        """Take all that is there now for synced, and forget what was before."""
        shutil.rmtree(self._inodes, ignore_errors=True)
        self._inodes.mkdir()
        now, lines = int(time.monotonic() * 1e6), []
        for name, inode in self._names().items():
            path = self.root / name
            (self._inodes / str(inode)).hardlink_to(path)
            lines.append(f"S {inode} {path.stat().st_size} {now} {name}\n")
        self._log.write_text("".join(lines), encoding="utf-8")


def rename(names: dict[str, int], inode: int, name: str) -> None:
    """Give a file its name; it leaves the one that it had, for a server links none twice."""
    for old in [each for each, number in names.items() if number == inode]:
        del names[old]
    names[name] = inode
