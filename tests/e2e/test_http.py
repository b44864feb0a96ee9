"""The JSON API of the real daemon, called by curl."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
import pytest

from relay.v1 import timer_service_pb2 as service
from relay.v1 import timer_service_pb2_grpc
from tests.missing import need
from tests.web.described import Reply, reply
from tests.worlds.relay.processes import CHANNEL, Relay
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

TOPIC = "letters"
TIMERS = f"/v1/topics/{TOPIC}/timers"

UNHEARD = (7, 55, 56)
"""What curl says of a connection that was refused, or that waited for its turn when the port was closed."""


@dataclass(frozen=True)
class Curl:
    """curl with the API of a relay."""

    relay: Relay

    def start(self, method: str, path: str, body: Any = None) -> subprocess.Popen[bytes]:
        command = [need("curl"), "--silent", "--show-error", "--include"]
        command += ["--max-time", "60", "--noproxy", "*"]
        command += ["--request", method] if method != "HEAD" else ["--head"]
        if body is not None:
            command += ["--header", "content-type: application/json", "--data", json.dumps(body)]
        return subprocess.Popen(
            [*command, f"http://{self.relay.api}{path}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def __call__(self, method: str, path: str, body: Any = None) -> Reply:
        """The answer, which is as the OpenAPI document says."""
        return self.answer(self.start(method, path, body), method, path)

    def answer(self, process: subprocess.Popen[bytes], method: str, path: str) -> Reply:
        output, trouble = process.communicate(timeout=90)
        assert process.returncode == 0, trouble
        head, _, content = output.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        return reply(method, path, int(status.split()[1]), headers, content)


def test_the_life_of_timers(stage: Stage) -> None:
    """Stored through HTTP, read through gRPC, delivered on time, and gone."""
    relay = stage.relay()
    curl = Curl(relay)
    late = curl("POST", TIMERS, {"message": {"dear": "you"}, "delay_sec": 3600, "timer_id": "later"})
    assert late.status == 201
    assert curl("HEAD", late.headers["location"]).status == 200
    with grpc.insecure_channel(relay.target, options=CHANNEL) as channel:
        stub = timer_service_pb2_grpc.TimerServiceStub(channel)
        got = stub.GetTimer(service.GetTimerRequest(topic=TOPIC, timer_id="later")).timer
    assert (got.payload, got.content_type) == (b'{"dear":"you"}', "application/json")
    assert got.due_time.ToJsonString() == late.value["timer"]["due_time"]
    soon = curl("PUT", f"{TIMERS}/soon", {"message": "hello", "delay_sec": 0.5})
    assert soon.status == 201
    stage.application(relay, TOPIC)
    assert curl("POST", f"{TIMERS}/later:run", {}).value["result"] == "CHANGE_RESULT_RUN"
    stage.wait_empty(TOPIC)
    assert {event.timer_id for event in stage.journal.events("start")} == {"soon", "later"}
    assert curl("GET", f"{TIMERS}/soon").status == 404
    stage.judged(TOPIC)


def test_while_redis_is_away(stage: Stage) -> None:
    """503 with Retry-After, and the same call is fine when Redis is back; probes are another listener."""
    relay = stage.relay(settings={"RELAY_REDIS__COMMAND_TIMEOUT": "20"})
    curl = Curl(relay)
    stage.server.shut_down()
    refused = curl("PUT", f"{TIMERS}/a", {"message": 1, "delay_sec": 60})
    assert (refused.status, refused.value["type"]) == (503, "urn:relay:problem:store-unavailable")
    assert int(refused.headers["retry-after"]) > 0
    assert curl("GET", TIMERS).status == 503
    assert relay.probe("/healthz/live") == 200
    stage.server.start()
    eventually(
        lambda: curl("PUT", f"{TIMERS}/a", {"message": 1, "delay_sec": 60}).status in (200, 201),
        "it is stored",
    )
    assert curl("DELETE", f"{TIMERS}/a").value["cancelled"]


def test_a_stop_leaves_no_caller_without_an_answer(stage: Stage) -> None:
    """Many callers while the relay gets SIGTERM: each is answered, or finds nobody there; what was answered
    is stored."""
    relay = stage.relay()
    curl = Curl(relay)
    stored: list[str] = []
    broken: list[str] = []
    begun = threading.Barrier(5)

    def produce(worker: int) -> None:
        for index in range(10_000):
            timer_id = f"{worker}-{index}"
            process = curl.start("PUT", f"{TIMERS}/{timer_id}", {"message": 1, "delay_sec": 3600})
            try:
                answer = curl.answer(process, "PUT", f"{TIMERS}/{timer_id}")
            except AssertionError:
                if process.returncode not in UNHEARD:
                    broken.append(f"{timer_id}: {process.returncode}")
                return
            if answer.status == 201:
                stored.append(timer_id)
            if index == 2:
                begun.wait(60)

    threads = [threading.Thread(target=produce, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    begun.wait(60)
    relay.signal(signal.SIGTERM)
    assert relay.wait() == 0
    for thread in threads:
        thread.join(60)
    assert not broken
    there = {name.decode() for name in stage.client.zrange(f"timers_timeline:{TOPIC}", 0, -1)}  # type: ignore[union-attr]
    assert len(stored) >= 12
    assert set(stored) <= there
    stage.client.delete(f"timers_timeline:{TOPIC}", f"timers_payloads:{TOPIC}", f"timers_journal:{TOPIC}")


def test_it_can_be_switched_off(stage: Stage) -> None:
    relay = stage.relay(settings={"RELAY_API__ENABLED": "false"})
    assert relay.api == "off"
    assert relay.probe("/healthz/ready") == 200


def test_requests_are_counted(stage: Stage) -> None:
    """By method, route and status, as OpenTelemetry names them."""
    relay = stage.relay()
    curl = Curl(relay)
    assert curl("GET", f"{TIMERS}/nobody").status == 404

    def lines() -> list[str]:
        """They are counted once they are answered."""
        said = relay.metrics().splitlines()
        return [line for line in said if line.startswith("http_server_request_duration_seconds_count")]

    (line,) = eventually(lines, "it is counted")
    for label in (
        'http_request_method="GET"',
        'http_route="/v1/topics/{topic}/timers/{timer_id}"',
        'http_response_status_code="404"',
    ):
        assert label in line
    assert line.endswith(" 1.0")


def drain(curl: Curl, name: str, total: int, seen: list[tuple[str, str]], lock: threading.Lock) -> None:
    """Take and acknowledge, until all have been seen; note each as (timer_id, attempt)."""
    while True:
        with lock:
            if len({timer_id for timer_id, _ in seen}) >= total:
                return
        body = {"max_deliveries": 20, "wait_sec": 1}
        taken = curl("POST", f"/v1/topics/{TOPIC}/deliveries:receive", body).value["deliveries"]
        if not taken:
            continue
        with lock:
            seen += [(each["timer_id"], str(each["attempt"])) for each in taken]
        said = [{"token": each["token"], "outcome": "ack"} for each in taken]
        settled = curl("POST", f"/v1/topics/{TOPIC}/deliveries:settle", {"settlements": said})
        assert settled.value["problems"] == [], name


@pytest.mark.slow
def test_many_consumers(stage: Stage) -> None:
    """Four curls at two relays take 200 timers: each once."""
    relays = [stage.relay(), stage.relay("other")]
    curl = Curl(relays[0])
    timers = [{"timer_id": f"t{index}", "message": index, "delay_sec": index / 200} for index in range(200)]
    results = curl("POST", f"{TIMERS}:batch", {"timers": timers}).value["results"]
    assert all("scheduled" in result for result in results)
    seen: list[tuple[str, str]] = []
    lock = threading.Lock()
    threads = [
        threading.Thread(target=drain, args=(Curl(relays[index % 2]), f"c{index}", 200, seen, lock))
        for index in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(seen) == sorted((f"t{index}", "1") for index in range(200))
    stage.wait_empty(TOPIC)


def test_a_relay_dies_with_what_a_caller_holds(stage: Stage) -> None:
    """The lease runs out, and the attempt counts: the answer had been written."""
    settings = {"RELAY_DEFAULTS__LEASE_TTL": "6", "RELAY_DEFAULTS__RETRY__INITIAL": "0"}
    relay, other = stage.relay(settings=settings), stage.relay("other", settings)
    assert Curl(other)("PUT", f"{TIMERS}/a", {"message": 1, "delay_sec": 0}).status == 201
    receive = f"/v1/topics/{TOPIC}/deliveries:receive"
    (first,) = Curl(relay)("POST", receive, {}).value["deliveries"]
    eventually(lambda: stage.received(TOPIC) == 1, "the receipt is in Redis")
    relay.kill()
    found = eventually(partial(received, Curl(other)), "it comes again")
    assert (first["attempt"], found[0]["attempt"]) == (1, 2)
    settlement = {"token": found[0]["token"], "outcome": "ack"}
    settled = Curl(other)("POST", f"/v1/topics/{TOPIC}/deliveries:settle", {"settlements": [settlement]})
    assert settled.value["problems"] == []
    stage.wait_empty(TOPIC)


def received(curl: Curl) -> list[Any]:
    """One delivery, or none within the wait."""
    deliveries: list[Any] = curl("POST", f"/v1/topics/{TOPIC}/deliveries:receive", {}).value["deliveries"]
    return deliveries


def test_each_group_of_a_stream_receives(stage: Stage) -> None:
    """With `dispatch: stream`, whoever asks is of his relay's group, and each group gets every timer."""
    groups = ("billing", "shipping")
    relays = [
        stage.relay(
            group,
            {
                f"RELAY_TOPICS__{TOPIC}__DISPATCH": "stream",
                f"RELAY_TOPICS__{TOPIC}__STREAM__GROUP": group,
                f"RELAY_TOPICS__{TOPIC}__RETRY__INITIAL": "0",
            },
        )
        for group in groups
    ]
    timers = [{"timer_id": f"t{index}", "message": index, "delay_sec": 0.2} for index in range(20)]
    assert Curl(relays[0])("POST", f"{TIMERS}:batch", {"timers": timers}).status == 200
    for relay in relays:
        curl, lock, seen = Curl(relay), threading.Lock(), list[tuple[str, str]]()
        (first,) = eventually(partial(received, curl), "one is received")
        nack = {"token": first["token"], "outcome": "nack", "retry_after_sec": 0}
        said = curl("POST", f"/v1/topics/{TOPIC}/deliveries:settle", {"settlements": [nack]})
        assert said.value["problems"] == []
        drain(curl, relay.name, 20, seen, lock)
        assert sorted(seen) == sorted(
            (f"t{index}", "2" if f"t{index}" == first["timer_id"] else "1") for index in range(20)
        )


def test_lists_are_for_others(stage: Stage) -> None:
    """Workers take those timers in Redis: there is nothing to receive."""
    relay = stage.relay(settings={f"RELAY_TOPICS__{TOPIC}__DISPATCH": "list"})
    refused = Curl(relay)("POST", f"/v1/topics/{TOPIC}/deliveries:receive", {})
    assert (refused.status, refused.field) == (422, "topic")
