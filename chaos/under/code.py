"""The code of the version before, for relays that are upgraded."""

from __future__ import annotations

import subprocess
import tarfile
from functools import cache
from io import BytesIO
from pathlib import Path

from chaos.under.preloaded import ToolMissing

HERE = Path(__file__).resolve().parents[2]
PINNED = "3725d13bc81f7d2e843526cc6a8802a707fcef5c"
"""The version before, as long as there is no tag: the last commit before calls had a durability."""


@cache
def before() -> str:
    """The revision of the version before: the last tag behind this one, or `PINNED`.

    Raises ToolMissing where the repository's history does not have it.
    """
    try:
        return git("describe", "--tags", "--abbrev=0", "HEAD^").decode().strip()
    except subprocess.CalledProcessError:
        pass
    try:
        return git("rev-parse", "--verify", "--quiet", f"{PINNED}^{{commit}}").decode().strip()
    except subprocess.CalledProcessError:
        raise ToolMissing("history of this repository", "git fetch --unshallow") from None


def unpack(revision: str, folder: Path) -> Path:
    """Put the code of a revision (relay/ and lua/) into a new folder, and return that."""
    packed = git("archive", "--format=tar", revision, "relay", "lua")
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def git(*arguments: str) -> bytes:
    try:
        return subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, check=True).stdout
    except FileNotFoundError:
        raise ToolMissing("git", "apt-get install git") from None
