"""The example in Go, by its own toolchain: generated, vetted, tested, judged, and run beside a real relay."""

from __future__ import annotations

import pytest

from tests.languages import reminders
from tests.languages.toolchains import BUF, GO_EXAMPLE, alone, built, conformance, go, go_run
from tests.worlds.relay.stage import Stage

pytestmark = [
    pytest.mark.slow,
    pytest.mark.checkout,
    pytest.mark.timeout(2000),
    pytest.mark.xdist_group("go"),
]

PROGRAM = str(GO_EXAMPLE / "bin" / "reminders")


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    """Both programs, from stubs that are generated as the README says."""
    with alone(GO_EXAMPLE):
        built(GO_EXAMPLE, BUF, "generate", path=str(go()), GOTOOLCHAIN="local")
        go_run("build", "-o", "bin/", ".", "./conformance")


def test_it_is_in_order() -> None:
    """By gofmt and go vet; and the modules are those of go.sum."""
    sources = [str(path) for path in sorted(GO_EXAMPLE.rglob("*.go")) if "stubs" not in path.parts]
    assert built(GO_EXAMPLE, go() / "gofmt", "-l", *sources) == ""
    go_run("vet", "./...")
    assert go_run("mod", "verify").endswith("all modules verified\n")


def test_its_own_tests_pass() -> None:
    assert "ok" in go_run("test", "./relay")


def test_it_passes_the_conformance_suite() -> None:
    done = conformance(str(GO_EXAMPLE / "bin" / "conformance"))
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(" passed, 0 failed, 3 left out\n")


@pytest.mark.parametrize("way", ["stream", "push"])
def test_reminders(stage: Stage, way: reminders.Way) -> None:
    reminders.play(stage, way, [PROGRAM], "1s")
