"""Make what the package index would get, and check it. Nothing is uploaded.

    make release-check          the version of pyproject.toml, into dist/

1. The version is the same everywhere, and the changelog has a section for it (or `Unreleased`, which a real
   release renames).
2. The sdist is built from the clone, and the wheel from the sdist: so the sdist is whole. A wheel from the
   clone has the same files.
3. `twine check --strict` reads the metadata and the README as the index would.
4. On each Python from 3.11 that is found, in an empty venv: the base install imports the client with warnings
   as errors and is typed, and the extra `daemon` brings a command that says its version.
5. dist/SHA256SUMS has the files' digests.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
TOOLS = ROOT / ".venv-release"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
CONSTRAINTS = ("-c", str(ROOT / "constraints.txt"))

IS_WHOLE = """
import importlib.metadata, pathlib, sys, relay, relay.client, relay.client.testing
package = pathlib.Path(relay.__file__).parent
assert package.is_relative_to(sys.prefix), package
assert (package / "py.typed").is_file()
assert importlib.metadata.version("relay-timers") == relay.__version__
"""


class NotReady(Exception):
    """What is to be mended before a release."""


def version(pyproject: str, package: str) -> str:
    """The version, from the texts of pyproject.toml and relay/__init__.py. Raises NotReady if they differ."""
    said = str(tomllib.loads(pyproject)["project"]["version"])
    found = re.search(r'^__version__ = "(.*)"$', package, re.MULTILINE)
    if found is None or found[1] != said:
        raise NotReady(
            f"pyproject.toml has version {said}, and relay/__init__.py {found and found[1]}: make them one"
        )
    return said


def news(changelog: str, wanted: str) -> str:
    """The heading under which the changelog has this version's news. Raises NotReady if there is none."""
    for heading in (wanted, "Unreleased"):
        section = re.search(
            rf"^## \[{re.escape(heading)}\](.*?)(?=^## \[|\Z)", changelog, re.MULTILINE | re.DOTALL
        )
        if section and re.search(r"^- ", section[1], re.MULTILINE):
            return heading
    raise NotReady(f"CHANGELOG.md has no news under [{wanted}] or [Unreleased]")


def files(archive: Path) -> set[str]:
    """The files in an archive, as the wheel names them: without what its metadata adds."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as held:
            return {name for name in held.namelist() if ".dist-info/" not in name}
    with tarfile.open(archive) as packed:
        return {name.partition("/")[2] for name in packed.getnames()}


def say(text: str) -> None:
    print(f"release: {text}", flush=True)


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run a command without the clone on its path. Raises NotReady if it fails."""
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotReady(f"{' '.join(map(str, command))[:200]}: {(done.stdout + done.stderr)[-2000:]}")


def build() -> tuple[Path, Path]:
    """Build both into dist/, and compare the wheel with one from the clone."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST, ROOT)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    with tempfile.TemporaryDirectory(prefix="relay-release-") as place:
        run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", place, ROOT)
        (direct,) = Path(place).glob("*.whl")
        if lost := files(direct) ^ files(wheel):
            raise NotReady(f"the sdist does not have all: {', '.join(sorted(lost)[:10])}")
    return sdist, wheel


def check_metadata(*archives: Path) -> None:
    """By twine, in a venv of its own."""
    python = TOOLS / "bin" / "python"
    if not python.exists():
        venv.create(TOOLS, with_pip=True)
    wanted = ROOT / "tools" / "release_requirements.txt"
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", wanted)
    run(python, "-m", "twine", "check", "--strict", *archives)


def pythons() -> list[Path]:
    """Each Python that Relay is for, and that is found: on PATH, or where pyenv keeps them.

    Raises NotReady if there is none: nothing would be checked.
    """
    found = []
    for each in PYTHONS:
        on_path = shutil.which(f"python{each}")
        places = [Path(on_path)] if on_path else []
        places += sorted(Path.home().glob(f".pyenv/versions/{each}.*/bin/python3"))
        for place in places:
            told = subprocess.run(
                [place, "-c", "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if told.stdout.strip() == each:
                found.append(place)
                break
    if not found:
        raise NotReady(f"none of Python {', '.join(PYTHONS)} is found, on PATH as python3.N or in ~/.pyenv")
    return found


def check_install(python: Path, wheel: Path, wanted: str) -> None:
    """The base, then the daemon, in empty venvs. A shim will do: the venv has the Python behind it."""
    with tempfile.TemporaryDirectory(prefix="relay-release-") as place:
        home = Path(place)
        for name, extra in (("base", ""), ("daemon", "[daemon]")):
            home = Path(place, name)
            run(python, "-m", "venv", home, cwd=Path(place))
            own = home / "bin" / "python"
            pip = (own, "-m", "pip", "--disable-pip-version-check")
            run(*pip, "install", "-q", *CONSTRAINTS, f"{wheel}{extra}", cwd=Path(place))
            run(own, "-W", "error", "-c", IS_WHOLE, cwd=Path(place))
            run(*pip, "check", cwd=Path(place))
        told = subprocess.run(
            [home / "bin" / "relay", "--version"], capture_output=True, text=True, check=False, cwd=place
        )
        if told.stdout.strip() != f"relay {wanted}":
            raise NotReady(
                f"relay --version says {told.stdout.strip()!r}, and not {wanted}: {told.stderr[-500:]}"
            )


def sums(*archives: Path) -> None:
    """Write dist/SHA256SUMS, which `sha256sum -c` reads."""
    lines = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in archives]
    (DIST / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def main() -> None:
    """All of it; exits with 1 and what is to be mended."""
    try:
        wanted = version((ROOT / "pyproject.toml").read_text(), (ROOT / "relay" / "__init__.py").read_text())
        heading = news((ROOT / "CHANGELOG.md").read_text(), wanted)
        say(f"version {wanted}, news under [{heading}]")
        sdist, wheel = build()
        say(f"built {sdist.name} and {wheel.name}")
        check_metadata(sdist, wheel)
        say("the index would take the metadata")
        for python in pythons():
            check_install(python, wheel, wanted)
            say(f"installs on {python}")
        sums(sdist, wheel)
    except NotReady as reason:
        sys.exit(f"release: {reason}")
    if heading != wanted:
        say(f"before a release, rename [Unreleased] to [{wanted}] in CHANGELOG.md, and run `make baseline`")
    say("to upload: .venv-release/bin/python -m twine upload dist/*.whl dist/*.tar.gz")


if __name__ == "__main__":
    main()
