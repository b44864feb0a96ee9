"""The example in TypeScript, by its own toolchain: compiled, tested, judged, run beside a real relay."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.e2e.node import NODE
from tests.languages import reminders
from tests.languages.toolchains import SPARED, TYPESCRIPT_EXAMPLE, alone, conformance, npm_run
from tests.worlds.relay.stage import Stage

pytestmark = [
    pytest.mark.slow,
    pytest.mark.checkout,
    pytest.mark.timeout(2000),
    pytest.mark.xdist_group("typescript"),
]

PROGRAM = TYPESCRIPT_EXAMPLE / "dist" / "main.js"


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    """The packages of the lock file, the types of the API, and the programs."""
    with alone(TYPESCRIPT_EXAMPLE):
        npm_run("ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund")
        npm_run("run", "build")


def test_its_own_tests_pass() -> None:
    assert re.search(r"^. fail 0$", npm_run("test"), re.MULTILINE)


def test_it_passes_the_conformance_suite() -> None:
    done = conformance(shlex.join([str(NODE), str(PROGRAM.with_name("conformance.js"))]), *SPARED)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(" passed, 0 failed, 1 left out\n")


@pytest.mark.parametrize("way", ["stream", "push"])
def test_reminders(stage: Stage, way: reminders.Way) -> None:
    reminders.play(stage, way, [str(NODE), str(PROGRAM)], "1000")
