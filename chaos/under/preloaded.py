"""Libraries that a process loads before its own (LD_PRELOAD), and that change what the system tells it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import MutableMapping
from functools import cache
from pathlib import Path


class ToolMissing(RuntimeError):
    """This machine lacks something that a fault needs; `what` names it, and `brought_by` is the command that
    brings it."""

    def __init__(self, what: str, brought_by: str) -> None:
        super().__init__(f"no {what} here: `{brought_by}` brings it")
        self.what, self.brought_by = what, brought_by


def preload(environment: MutableMapping[str, str], library: Path) -> None:
    """Have a process with these variables load the library, in front of what it loads already."""
    others = [each for each in environment.get("LD_PRELOAD", "").split(":") if each and each != str(library)]
    environment["LD_PRELOAD"] = ":".join([str(library), *others])


@cache
def compiled(source: Path) -> Path:
    """The library of one C file, made by the system's `cc` unless the cache has it already.

    Raises ToolMissing without a compiler, and `CalledProcessError` if that refuses the file.
    """
    text = source.read_bytes()
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relay-chaos"
    library = home / f"{source.stem}-{hashlib.sha256(text).hexdigest()[:16]}.so"
    if library.exists():
        return library
    compiler = shutil.which("cc")
    if compiler is None:
        raise ToolMissing("cc", "apt-get install gcc libc6-dev")
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home) as folder:
        made = Path(folder) / library.name
        flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        subprocess.run([compiler, *flags, "-o", made, source, "-ldl"], check=True)
        made.replace(library)  # whole, or not at all: others may be compiling it at this moment
    return library
