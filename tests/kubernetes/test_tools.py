"""The tools of this tier are a help and no condition: without them `make test` runs the rest."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

import pytest

from tests.kubernetes.tools import ROOT, Ran, run

pytestmark = pytest.mark.checkout

FAKE = """#!/bin/sh
echo "$(basename "$0") $*"
"""
COMMANDS = ("python", "ruff", "mypy", "lint-imports", "buf")


def make_test(where: Path, target: str = "test", *, require_all: str = "") -> Ran:
    """A target, in a clone whose programs only say that they run, where no tool can be had."""
    shutil.copy(ROOT / "Makefile", where)
    files = ("pyproject.toml", "constraints.txt", "tests/pipeline/moto.txt")
    fetched = ("relay/pipeline/spark/S3LogStore.java", "tests/pipeline/kafka_jars.py")
    others = ("tests/orchestrators/requirements.txt", "tests/orchestrators/constraints.txt")
    for name in (*files, *fetched, *others, "tools/kube_requirements.txt", "tools/kube_tools.py"):
        (where / name).parent.mkdir(exist_ok=True, parents=True)
        (where / name).touch()
    stamps = {".venv": "stamp-test", ".venv-pipeline": "stamp", ".venv-orchestrators": "stamp"}
    for venv, stamp in stamps.items():
        (where / venv / "bin").mkdir(parents=True)
        for name in COMMANDS:
            program = where / venv / "bin" / name
            program.write_text(FAKE)
            program.chmod(0o755)
        (where / venv / stamp).touch()
    env = (f"PATH={os.environ['PATH']}", f"RELAY_REQUIRE_ALL={require_all}")
    return run("env", "-i", *env, "make", target, "PYTHON=false", cwd=where)


def test_a_newcomer_s_tests_run_without_the_tools(tmp_path: Path) -> None:
    ran = make_test(tmp_path)
    assert ran.code == 0, ran.err
    assert "tests/kubernetes skips" in ran.out
    assert [line[line.index("-m not") :] for line in ran.out.splitlines() if "-m pytest" in line] == [
        "-m not slow"
    ] * 2


def test_the_long_way_leaves_nothing_out(tmp_path: Path) -> None:
    """Both suites whole, and the wheel."""
    ran = make_test(tmp_path, "test-all")
    assert ran.code == 0, ran.err
    assert ran.out.count("-m pytest") == 2
    assert "slow" not in ran.out
    assert "tools/wheel_test.py" in ran.out


def test_in_ci_they_must_be_there(tmp_path: Path) -> None:
    ran = make_test(tmp_path, require_all="1")
    assert ran.code != 0
    assert "python -m pytest" not in ran.out


def test_programs_that_could_not_run_are_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would make tests fail that had better skip."""
    from tools.kube_tools import install  # late: the wheel's tests have no tools

    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(SystemExit, match=r"for Linux x86_64, and this is Linux aarch64$"):
        install(tmp_path / "venv")
    assert not (tmp_path / "venv").exists()
