"""The example in Java, by its own toolchain: generated, tested, judged, and run beside a real relay."""

from __future__ import annotations

import shlex

import pytest

from tests.languages import reminders
from tests.languages.toolchains import JAVA_EXAMPLE, SPARED, alone, conformance, java, maven_run
from tests.worlds.relay.stage import Stage

pytestmark = [
    pytest.mark.slow,
    pytest.mark.checkout,
    pytest.mark.timeout(2000),
    pytest.mark.xdist_group("java"),
]

STARTS_FAST = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")


def program(name: str) -> list[str]:
    """How a class of the example is run: as its README says, in a small JVM. Java reads arguments by the
    locale."""
    classes = f"{JAVA_EXAMPLE}/target/classes:{JAVA_EXAMPLE}/target/lib/*"
    return ["env", "LC_ALL=C.UTF-8", java(), *STARTS_FAST, "-cp", classes, f"reminders.{name}"]


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    """Stubs, classes, and what they need, as the README says; and its own tests pass."""
    with alone(JAVA_EXAMPLE):
        maven_run("test")


def test_it_passes_the_conformance_suite() -> None:
    done = conformance(shlex.join(program("Conformance")), *SPARED)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(" passed, 0 failed, 1 left out\n")


@pytest.mark.parametrize("way", ["stream", "push"])
def test_reminders(stage: Stage, way: reminders.Way) -> None:
    reminders.play(stage, way, program("Main"), "1000")
