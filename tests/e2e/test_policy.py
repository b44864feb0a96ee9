"""A relay with a policy: from its start, through changes of the file, to one that can't be used."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from relay.client import RelayError, ResourceExhausted, SyncRelayClient
from tests.worlds.relay.processes import put_file
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import PATIENCE, eventually

RULE = "rules: [{principals: [anonymous], topics: [t], verbs: [%s]}]\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "policy.yaml"


def allowed(call: Callable[[], object]) -> bool:
    try:
        call()
    except RelayError as denied:
        assert "the policy does not give anonymous the verb" in str(denied)  # noqa: PT017
        return False
    return True


def test_a_changed_policy_is_in_force_without_a_restart(stage: Stage, file: Path, tmp_path: Path) -> None:
    """What the relay does by itself, such as to put the settings' recurrences, no policy is asked about."""
    declared = tmp_path / "recurrences.yaml"
    declared.write_text("- {topic: t, recurrence_id: often, rule: {every_sec: 3600}}\n")
    file.write_text(RULE % "read")
    relay = stage.relay(settings={"RELAY_POLICY_FILE": str(file), "RELAY_RECURRENCES__FILE": str(declared)})
    with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
        schedule = partial(client.schedule, "t", b"x", timer_id="a", delay=3600)
        assert [each.recurrence_id for each in client.recurrences.list("t")] == ["often"]
        assert not allowed(schedule)
        put_file(file, RULE % "schedule, read")
        eventually(partial(allowed, schedule), "the changed policy is in force")
        put_file(file, RULE % "reed")
        eventually(
            lambda: re.search(
                r'^relay_files_refused_total{.*setting="policy_file".*} 1\.0$', relay.metrics(), re.MULTILINE
            ),
            "the bad file is counted",
        )
        assert re.search(r"^relay_policy_stale({.*})? 1\.0$", relay.metrics(), re.MULTILINE)
        assert allowed(schedule)
    (said,) = (line for line in relay.lines() if line["level"] == "error")
    assert "line 1: rules[1].verbs[1]: 'reed' is not a verb" in said["reason"]
    assert re.search(r'^relay_calls_denied_total{.*verb="schedule".*}', relay.metrics(), re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "can't be read"),
        ("", "rules: is missing"),
        (RULE % "reed", "line 1: rules[1].verbs[1]: 'reed' is not"),
    ],
)
def test_a_bad_policy_refuses_the_start(stage: Stage, file: Path, text: str | None, problem: str) -> None:
    if text is not None:
        file.write_text(text)
    relay = stage.relay(settings={"RELAY_POLICY_FILE": str(file)}, start=False)
    relay.spawn()
    assert relay.wait() == 1
    last = relay.lines()[-1]
    assert (last["level"], last["message"].startswith(f"policy_file: {file} ")) == ("critical", True), last
    assert problem in last["message"]


def test_bounds_come_and_go_with_the_policy(stage: Stage, file: Path) -> None:
    """Whoever is over one is told when to come back, and counted by name."""
    rule = RULE % "schedule, read"
    file.write_text(f"{rule}bounds: [{{principals: [anonymous], calls_per_second: 0.001}}]\n")
    relay = stage.relay(settings={"RELAY_POLICY_FILE": str(file)})
    with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
        said = r"anonymous is over its calls_per_second of 0\.001"
        with pytest.raises(ResourceExhausted, match=said) as told:  # noqa: PT012
            for _ in range(2):  # the first is let in
                client.get("t", "a")
        assert 900 < (told.value.retry_after or 0) <= 1000
        assert re.search(
            r'^relay_calls_over_bound_total{.*bound="calls_per_second".*principal="anonymous".*} 1\.0$',
            relay.metrics(),
            re.MULTILINE,
        )
        put_file(file, rule)

        def served() -> bool:
            try:
                client.get("t", "a")
            except ResourceExhausted:
                return False
            return True

        eventually(served, "the bound is gone")


def test_a_caller_is_slowed_to_its_bound_and_not_stopped(stage: Stage, file: Path) -> None:
    """The client comes back by itself, as often as it takes."""
    bound = "{principals: [anonymous], calls_per_second: 20, burst_seconds: 0.1}"
    file.write_text(f"{RULE % 'schedule'}bounds: [{bound}]\n")
    relay = stage.relay(settings={"RELAY_POLICY_FILE": str(file)})
    with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
        began = time.monotonic()
        for number in range(12):
            client.schedule("t", b"x", timer_id=str(number), delay=3600)
        assert time.monotonic() - began >= 0.5  # two at once, and ten more at 20 a second
