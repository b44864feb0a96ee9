"""Recurrences over HTTP, against a real relay; every answer is as the OpenAPI document says."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.web.described import Reply, reply
from tests.worlds.relay.processes import Relay
from tests.worlds.relay.stage import one_relay
from tests.worlds.waiting import PATIENCE

ALL = "/v1/topics/t/recurrences"
ONE = f"{ALL}/night%2Fly"


@pytest.fixture(scope="module")
def daemon() -> Iterator[Relay]:
    with one_relay() as relay:
        yield relay


@pytest.fixture
def api(daemon: Relay) -> Any:
    def call(method: str, path: str, body: Any = None) -> Reply:
        connection = http.client.HTTPConnection(daemon.api, timeout=PATIENCE)
        try:
            takes = method in ("PUT", "POST")
            content = json.dumps({} if body is None else body).encode() if takes else None
            connection.request(method, path, content, {"content-type": "application/json"} if takes else {})
            answer = connection.getresponse()
            return reply(method, path, answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    return call


def test_the_life_of_a_recurrence(api: Any) -> None:
    """Each operation once, and the statuses that tell something."""
    wanted = {
        "rule": {"cron": "0 3 * * *", "zone": "Europe/Berlin", "fold": "both"},
        "message": {"report": "all"},
        "overlap": "buffer",
        "jitter_sec": 1.5,
    }
    made = api("PUT", ONE, wanted)
    assert (made.status, made.headers["location"]) == (201, ONE)
    assert made.value["result"] == "PUT_RESULT_CREATED"
    spec = made.value["recurrence"]["spec"]
    assert (spec["recurrence_id"], spec["message"], spec["jitter"]) == (
        "night/ly",
        {"report": "all"},
        "1.500s",
    )
    again = api("PUT", ONE, wanted)
    assert (again.status, again.value["result"]) == (200, "PUT_RESULT_UNCHANGED")
    assert api("GET", ONE).value["recurrence"] == made.value["recurrence"]
    api("PUT", f"{ALL}/other", {"rule": {"every_sec": 60}})
    api("POST", f"{ALL}/other:pause", {"note": "why"})
    listed = api("GET", f"{ALL}?paused=true").value["recurrences"]
    assert [(each["spec"]["recurrence_id"], each["pause_note"]) for each in listed] == [("other", "why")]
    first = api("GET", f"{ALL}?page_size=1").value
    assert "message" not in first["recurrences"][0]["spec"]
    token = first["next_page_token"]
    assert [
        each["spec"]["recurrence_id"]
        for each in api("GET", f"{ALL}?page_size=1&page_token={token}").value["recurrences"]
    ] == ["other"]
    assert "pause_time" not in api("POST", f"{ALL}/other:resume").value["recurrence"]
    timer_id = api("POST", f"{ONE}:trigger").value["timer_id"]
    filled = api(
        "POST",
        f"{ONE}:backfill",
        {"start_time": "2026-11-20T00:00:00Z", "end_time": "2026-11-22T00:00:00Z", "overlap": "allow"},
    )
    assert (filled.value["occurrences"], filled.value["last_time"]) == (2, "2026-11-21T02:00:00Z")
    assert filled.value["waiting"] == 0
    past = api("GET", f"{ONE}/history").value["instants"]
    assert (len(past), past[0]["timer_id"]) == (3, timer_id)
    assert {each["outcome"] for each in past} == {"OCCURRENCE_OUTCOME_WAITING"}
    assert len(api("GET", f"{ONE}/history?limit=2").value["instants"]) == 2
    refused = api("GET", f"{ONE}/history?limit=17")
    assert (refused.status, refused.value["field"]) == (422, "limit")
    assert api("DELETE", f"{ONE}?cancel_waiting=true").value == {
        "deleted": True,
        "cancelled": 3,
        "reached": "stored",
    }
    assert api("DELETE", ONE).value == {"deleted": False, "cancelled": 0, "reached": "stored"}
    assert api("GET", ONE).status == 404
    assert api("POST", f"{ONE}:trigger").status == 404


def test_a_version_that_is_not_there(api: Any) -> None:
    """412, as for a timer's condition; a number or a text, as protobuf's JSON has it."""
    wanted = {"rule": {"every": "60s"}}
    path = f"{ALL}/versions"
    assert api("PUT", path, {**wanted, "if_version": 0}).status == 201
    refused = api("PUT", path, {**wanted, "if_version": "0"})
    assert (refused.status, refused.value["type"]) == (412, "urn:relay:problem:other-version")
    assert "has version 1, not 0" in refused.value["detail"]
    assert api("PUT", path, {"rule": {"every": "90s"}, "if_version": 1}).value["recurrence"]["version"] == "2"


def test_a_preview(api: Any) -> None:
    rule = {"cron": "30 2 * * *", "zone": "Europe/Berlin", "gap": "skip"}
    body = {"rule": rule, "count": 2, "after_time": "2026-03-28T12:00:00Z"}
    skipped, plain = api("POST", "/v1/recurrences:preview", body).value["instants"]
    assert (skipped["time"], skipped["left_out"]) == ("2026-03-29T01:30:00Z", "gap")
    assert plain["local_time"] == "2026-03-30T02:30:00+02:00"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "rule"),
        ({"rule": {"cron": "61 * * * *"}}, "rule.cron"),
        ({"rule": {"every_sec": 0}}, "rule.every_sec"),
        ({"rule": {"every_sec": "x"}}, "rule.every_sec"),
        ({"rule": {"cron": "@daily", "when": 1}}, "rule.when"),
        ({"rule": {"cron": "@daily"}, "jitter_sec": 100_000}, "jitter_sec"),
        ({"rule": {"cron": "@daily"}, "overlap": "never"}, "overlap"),
        ({"rule": {"cron": "@daily"}, "topic": "t"}, "topic"),
        ({"rule": {"cron": "@daily"}, "if_version": -1}, "if_version"),
        ({"rule": {"cron": "@daily"}, "recurrence": {}}, "recurrence"),
    ],
)
def test_a_wrong_field_is_named_as_it_was_given(api: Any, body: Any, field: str) -> None:
    refused = api("PUT", f"{ALL}/wrong", body)
    assert (refused.status, refused.field) == (422, field), refused.value
