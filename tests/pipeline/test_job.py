"""What every job shares: the bar, and failures in one sentence."""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JNetworkError

from relay.core.errors import InvalidField, StoreUnavailable
from relay.pipeline.jobs import job
from relay.pipeline.jobs.job import Bar, translated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_is_one_line_on_a_terminal(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names job and step, and is wiped away in the end; elsewhere nothing is written."""
    monkeypatch.setattr(Bar, "EVERY", 0.001)
    out, file = Terminal(), io.StringIO()
    with Bar(spark, "schedule", out) as bar, Bar(spark, "schedule", file) as silent:
        silent.step("loading")
        bar.step("loading")
        deadline = time.monotonic() + 60
        while "schedule: loading" not in out.getvalue():
            assert time.monotonic() < deadline
            time.sleep(0.001)
    assert out.getvalue().endswith("\r\033[K")
    assert "\n" not in out.getvalue()
    assert file.getvalue() == ""


@pytest.mark.parametrize(
    ("said", "message", "kind"),
    [
        ("x\nrelay.core.errors.InvalidField: topic: is empty\nat y", "topic: is empty", InvalidField),
        ("org.x: relay.core.errors.StoreUnavailable: refused\n", "refused", StoreUnavailable),
        (
            "Traceback (most recent call last):\n  File\nValueError: no\nKeyError: 'b'\n",
            "KeyError: 'b'",
            None,
        ),
        ("[PATH_NOT_FOUND] Path does not exist: x\nmore", "[PATH_NOT_FOUND] Path does not exist: x", None),
        ("", "Exception", None),
    ],
)
def test_failures_are_one_sentence(said: str, message: str, kind: type | None) -> None:
    """A worker's error of ours as it was raised there; others without their stack."""
    failure = translated(Exception(said))
    assert (str(failure), failure.kind, failure.unavailable) == (message, kind, kind is StoreUnavailable)


@pytest.mark.parametrize("gone", [ConnectionRefusedError(111, "refused"), Py4JNetworkError("no answer")])
def test_a_jvm_that_has_ended_is_one_sentence(spark: SparkSession, gone: Exception) -> None:
    """It says what to do about it, and no stack."""

    def work(_: SparkSession, __: Bar) -> job.Summary:
        raise gone

    with pytest.raises(job.JobFailed, match=r"JVM has ended.*spark\.driver\.memory"):
        job.run("schedule", work, job.Running(bar=False))


def test_a_session_that_is_there_is_left_as_it_was(spark: SparkSession) -> None:
    """Its time zone too, and it goes on."""
    before = spark.conf.get("spark.sql.session.timeZone")
    zones = []

    def work(mine: SparkSession, bar: Bar) -> job.Summary:
        assert mine is spark
        zones.append(mine.conf.get("spark.sql.session.timeZone"))
        return job.Summary("x")

    assert job.run("x", work, job.Running(time_zone="Asia/Kolkata")).document()["ok"]
    assert zones == ["Asia/Kolkata"]
    assert spark.conf.get("spark.sql.session.timeZone") == before
    assert spark.range(3).count() == 3
