"""The JavaScript example for real: a node process beside a real relay, by stream and by push."""

from __future__ import annotations

import hashlib
import json
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2

from relay.client import SyncRelayClient
from relay.rpc.application import DELIVER
from relay.store.codec import lease_record
from relay.v1 import (
    delivery_service_pb2,
    timer_handler_pb2,
    timer_pb2,
    timer_service_pb2,
    timer_service_pb2_grpc,
)
from tests.docs import pages
from tests.e2e import node
from tests.e2e.node import Application
from tests.missing import skip
from tests.servers import free_port
from tests.worlds.relay.processes import CHANNEL, Event, Relay, command
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.checkout,
    pytest.mark.timeout(300),
]  # npm may have to fetch its packages first

TOPIC = "orders"
Way = Literal["stream", "push"]


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    """The example's packages, which npm fetches once."""
    try:
        node.node()
    except node.NpmFailed as failure:
        skip(f"npm package ({failure})", "npm ci --prefix examples/javascript")


def pushed(topic: str, target: str) -> dict[str, str]:
    """Settings with which a relay pushes the topic."""
    prefix = f"RELAY_TOPICS__{topic}__DELIVERY__"
    return {f"{prefix}MODE": "push", f"{prefix}TARGET": target}


class Duo:
    """A relay and the application in JavaScript beside it, which is not running yet."""

    def __init__(self, stage: Stage, way: Way) -> None:
        self.stage = stage
        self.way = way
        self.relay: Relay
        self.application: Application

    def set_up(self, *, at_once: int = 100, **policy: object) -> Application:
        """The relay runs; `policy` is the topic's."""
        settings = {f"RELAY_TOPICS__{TOPIC}__{name.upper()}": str(value) for name, value in policy.items()}
        options = ["--max-outstanding", str(at_once)]
        if self.way == "push":
            target = f"127.0.0.1:{free_port()}"
            settings |= {f"RELAY_TOPICS__{TOPIC}__MAX_CONCURRENT": str(at_once), **pushed(TOPIC, target)}
            options = ["--listen", target]
        self.relay = self.stage.relay(settings={**settings, "RELAY_DRAIN_TIMEOUT": "600"})
        if self.way == "stream":
            options += ["--target", self.relay.target]
        self.application = self.stage.join(
            Application(self.stage.directory, self.stage.journal, TOPIC, *options)
        )
        return self.application

    def schedule(self, timer_id: str, **asks: object) -> None:
        self.stage.producer(self.relay).schedule(TOPIC, timer_id, asks)

    def starts(self, timer_id: str) -> list[Event]:
        return self.stage.journal.starts(timer_id)

    def attempts(self, timer_id: str) -> list[int]:
        return [event.attempt for event in self.starts(timer_id)]

    def finish(self, *, dead: int = 0) -> None:
        """Until nothing is left of the topic but so many dead letters, which go."""
        self.stage.wait_empty(TOPIC, dead=dead)


@pytest.fixture(params=["stream", "push"])
def duo(request: pytest.FixtureRequest, stage: Stage) -> Duo:
    return Duo(stage, request.param)


# ------------------------------------------------------------- outcomes


def test_outcomes(duo: Duo) -> None:
    """ACK, NACK with and without a delay, an Error, REJECT: each has its effect, and attempts count."""
    duo.set_up().start()
    duo.schedule("ack")
    duo.schedule("nack", nack_until=3, retry_after=0.7)
    duo.schedule("plain-nack", nack_until=2)
    duo.schedule("throw", throw_until=2)
    duo.schedule("reject", reject=True)
    duo.finish(dead=1)
    names = ("ack", "nack", "plain-nack", "throw", "reject")
    assert {name: duo.attempts(name) for name in names} == {
        "ack": [1],
        "nack": [1, 2, 3],
        "plain-nack": [1, 2],
        "throw": [1, 2],
        "reject": [1],
    }
    first, second, third = (event.at for event in duo.starts("nack"))
    assert min(second - first, third - second) >= 0.69
    assert len({event.occurrence for event in duo.starts("nack")}) == 1
    (refusal,) = [
        line for line in duo.relay.lines() if line["message"] == "timer rejected by its application"
    ]
    assert (refusal["timer_id"], refusal["reason"]) == ("reject", "as asked")


def test_the_page_s_handler(stage: Stage) -> None:
    """The example of the README: it fetches the URL that is the payload."""
    (block,) = pages.run_by(__file__)
    relay = stage.relay()
    program = stage.directory / "page.mjs"
    program.write_text(block.text.replace('"./', f'"{node.EXAMPLE}/'), encoding="utf-8")
    process = stage.join(node.Script(stage.directory, "page", program, RELAY_TARGET=relay.target))
    process.spawn()
    with SyncRelayClient(relay.target) as timers:
        timers.schedule("invoices", f"http://{relay.http}/healthz/live".encode(), delay=0)
    stage.wait_empty("invoices")
    assert process.terminate() == 0


def test_extend(stage: Stage) -> None:
    """By stream, a handler that EXTENDs outlives delivery_timeout; one that does not is delivered again."""
    duo = Duo(stage, "stream")
    duo.set_up(lease_ttl=10, delivery_timeout=10).start()
    duo.schedule("extended", gate=str(stage.gate()), extend=0.2)
    duo.schedule("silent", gate=str(stage.gate()))
    eventually(lambda: duo.attempts("silent")[:2] == [1, 2], "the silent one is delivered again")
    stage.gate().touch()
    eventually(lambda: stage.journal.ended()["extended"], "it ends")
    assert duo.attempts("extended") == [1]
    lost = {event.timer_id for event in stage.journal.events("lost")}
    assert lost <= {"silent"}


def test_a_cancelled_timer_tells_its_handler(stage: Stage) -> None:
    """A timer that is cancelled while its handler extends it: the handler's signal aborts."""
    duo = Duo(stage, "stream")
    duo.set_up().start()
    duo.schedule("gone", gate=str(stage.gate()), extend=0.1)
    eventually(lambda: duo.starts("gone"), "it has begun")
    assert stage.producer(duo.relay).cancel(TOPIC, "gone")
    eventually(lambda: stage.journal.events("lost"), "the handler is told")
    stage.gate().touch()
    eventually(lambda: stage.journal.ended()["gone"], "it ends")
    duo.finish()
    assert "no longer there" in duo.application.output()


# -------------------------------------------------------------- content


def test_content(duo: Duo) -> None:
    """Non-ASCII headers, 1 MiB of payload and microseconds come through as they were."""
    duo.set_up().start()
    payload = bytes(range(256)) * 4096
    headers = {"Kunde": "Müller & Søn ☕ 漢字", "naïve": "", "emoji-🕰": "\u202e𝄞"}
    due = 1_767_225_605_000_001  # a Date would lose the last three digits
    spec = timer_pb2.TimerSpec(
        topic=TOPIC, timer_id="ünïcode", payload=payload, headers=headers, content_type="application/x-all"
    )
    spec.due_time.FromMicroseconds(due)

    duo.stage.producer(duo.relay).store(spec)
    duo.finish()
    (event,) = duo.starts("ünïcode")
    assert event.headers == headers
    assert event.sha256 == hashlib.sha256(payload).hexdigest()
    assert event.due_time == str(due)
    assert (event.content_type, event.attempt) == ("application/x-all", 1)


# --------------------------------------------------------- stops and deaths


def test_sigterm_loses_no_attempt(duo: Duo) -> None:
    """SIGTERM under load: what has begun ends and is settled, what has not keeps its attempts at 0."""
    # With one attempt, whatever is lost is a suspect: see 0003.
    application = duo.set_up(at_once=10, lease_ttl=600, retry__max_attempts=1)
    names, gate = [f"t{number}" for number in range(60)], duo.stage.gate()
    duo.stage.producer(duo.relay).schedule_many(TOPIC, names[:10])
    duo.stage.producer(duo.relay).schedule_many(TOPIC, names[10:], {"gate": str(gate)})
    application.start()
    count = duo.stage.journal.count
    eventually(lambda: (count("end"), count("start")) == (10, 20), "ten have ended, ten run")
    application.signal(signal.SIGTERM)
    eventually(lambda: count("stopping"), "it has heard")
    gate.touch()
    assert application.wait() == 0
    begun = {event.timer_id for event in duo.stage.journal.events("start")}
    assert begun == set(duo.stage.journal.ended()), "a handler was cut off"
    assert begun < set(names), "there was nothing left to lose"
    eventually(lambda: duo.stage.left(TOPIC)[0] == len(names) - len(begun), "the begun are committed")
    eventually(lambda: duo.stage.leased(TOPIC) == 0, "no lease is left, long before it would end")
    kept = cast("dict[bytes, bytes]", duo.stage.client.hgetall(f"timers_leases:{TOPIC}"))
    assert not any(lease_record.read(raw).suspect for raw in kept.values()), "it looked like a death"

    application.start()
    duo.finish()
    assert {name: duo.attempts(name) for name in names} == {name: [1] for name in names}
    assert application.terminate() == 0


def test_push_from_the_relays_side(stage: Stage) -> None:
    """The receipt comes as the handler starts; SIGTERM is told by health at once, and the call ends OK."""
    target = f"127.0.0.1:{free_port()}"
    application = stage.join(Application(stage.directory, stage.journal, TOPIC, "--listen", target))
    application.start()
    payload = json.dumps({"gate": str(stage.gate())}).encode()
    message = delivery_service_pb2.Delivery(
        topic=TOPIC, timer_id="a", payload=payload, due_time={"seconds": 1}, attempt=1
    )
    with grpc.insecure_channel(target, options=CHANNEL) as channel:
        watch = channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )(health_pb2.HealthCheckRequest(), timeout=120.0)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        # As a stream of one answer, of which gRPC gives the initial metadata before the end.
        call = channel.unary_stream(
            DELIVER,
            request_serializer=timer_handler_pb2.TimerHandlerDeliverRequest.SerializeToString,
            response_deserializer=timer_handler_pb2.TimerHandlerDeliverResponse.FromString,
        )(timer_handler_pb2.TimerHandlerDeliverRequest(delivery=message), timeout=120.0)
        assert ("relay-receipt", "1") in tuple(call.initial_metadata())
        assert not stage.journal.ended(), "the receipt came with the answer"
        application.signal(signal.SIGTERM)
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert not stage.journal.ended()
        stage.gate().touch()
        assert [answer.outcome for answer in call] == [delivery_service_pb2.OUTCOME_ACK]
        watch.cancel()
    assert application.wait() == 0


def test_sigterm_bounds_a_slow_handler(stage: Stage) -> None:
    """A handler that takes longer than the grace period does not keep the process; its timer comes again."""
    duo = Duo(stage, "stream")
    application = duo.set_up(lease_ttl=600)
    application.arguments += ["--grace", "0.3"]
    application.start()
    duo.schedule("slow", sleep=600)
    eventually(lambda: duo.starts("slow"), "it has begun")
    application.signal(signal.SIGTERM)
    eventually(lambda: stage.leased(TOPIC) == 0, "its lease is given back")
    stored = stage.producer(duo.relay).get(TOPIC, "slow")
    assert stored is not None
    assert stored.attempts == 1


def test_sigkill(duo: Duo) -> None:
    """A handler that kills its process comes again as attempt 2; a timer that had not begun as attempt 1.

    It stands at a gate until Redis has its receipt, which a process that dies may take along.
    """
    application, gate = duo.set_up(at_once=1), duo.stage.gate()
    application.start()
    duo.schedule("killer", gate=str(gate), die_until=3)
    duo.schedule("waiting", sleep=0.1)
    for attempt in (1, 2):
        duo.stage.let_kill(application, TOPIC, "killer", attempt, gate)
        application.revive()
    gate.touch()
    duo.finish()
    assert duo.attempts("killer") == [1, 2, 3]
    assert duo.attempts("waiting") == [1]


def test_relay_restarts(duo: Duo) -> None:
    """A relay that drains waits for the handlers, and the application finds the next one by itself."""
    duo.set_up().start()
    duo.schedule("before", sleep=0.5)
    eventually(lambda: duo.starts("before"), "it has begun")
    assert duo.relay.terminate() == 0
    assert duo.stage.journal.ended()["before"] == 1
    assert duo.stage.left(TOPIC) == (0, 0, 0), "the relay went without waiting for the outcome"
    duo.relay.start()
    duo.schedule("after")
    duo.finish()
    assert (duo.attempts("before"), duo.attempts("after")) == ([1], [1])


def test_relay_dies(duo: Duo) -> None:
    """A relay that is killed: the handler hears of it, and the next relay delivers again as attempt 2."""
    duo.set_up(lease_ttl=8).start()  # which does not run out before the kill
    duo.schedule("held", gate=str(duo.stage.gate()))
    eventually(lambda: duo.starts("held"), "it has begun")

    def received() -> bool:
        raw = cast("bytes | None", duo.stage.client.hget(f"timers_leases:{TOPIC}", "held"))
        return raw is not None and lease_record.read(raw).received == 1

    eventually(received, "its receipt is in Redis")
    duo.relay.kill()
    eventually(lambda: duo.stage.journal.events("lost"), "the handler is told")
    duo.stage.gate().touch()
    duo.relay.start()
    duo.finish()
    assert duo.attempts("held") == [1, 2]


def test_refused(stage: Stage) -> None:
    """An Open that the relay refuses ends the application, and says which field is wrong."""
    relay = stage.relay()
    done = node.run(node.EXAMPLE / "application.mjs", ["stream", "to{pic}"], RELAY_TARGET=relay.target)
    assert done.returncode != 0
    assert "the relay refuses: topics: contains a brace" in done.stderr


# -------------------------------------------------------------- producer


def test_producer(stage: Stage) -> None:
    """Delay, due time to the microsecond, replacing, cancelling, and an error that names its field."""
    relay = stage.relay()
    spec = {
        "topic": TOPIC,
        "timerId": "a",
        "payload": "zwölf",
        "headers": {"é": "ü"},
        "contentType": "text/plain",
    }
    due = "4102444800000001"
    created = {"timer_id": "a", "due": due, "replaced": False}

    def is_created() -> bool:
        """A call that is repeated, since its answer was late, meets the timer of its first try."""
        node.produce(relay.target, {"cancel": [TOPIC, "a"]})
        return node.produce(relay.target, {"schedule": {**spec, "dueMicros": due}}) == created

    eventually(is_created, "it is created")
    stored = stage.producer(relay).get(TOPIC, "a")
    assert stored is not None
    assert (stored.payload.decode(), dict(stored.headers)) == ("zwölf", {"é": "ü"})
    assert stored.due_time.ToMicroseconds() == int(due)

    before = time.time()
    moved = node.produce(relay.target, {"schedule": {**spec, "delayMs": 90_000.5}})
    assert moved["replaced"]
    assert before + 90 < int(moved["due"]) / 1e6 < time.time() + 91
    nameless = node.produce(relay.target, {"schedule": {"topic": TOPIC, "delayMs": 60_000}})
    assert len(nameless["timer_id"]) == 36
    wrong = node.produce(relay.target, {"schedule": {**spec, "topic": "{", "delayMs": 1}})
    assert wrong == {"code": 3, "details": "topic: contains a brace; leave out { and }"}

    def is_cancelled() -> bool:
        """And one that cancels finds it gone."""
        node.produce(relay.target, {"schedule": {**spec, "dueMicros": due}})
        return node.produce(relay.target, {"cancel": [TOPIC, "a"]}) == {"cancelled": True}

    eventually(is_cancelled, "it is cancelled")
    assert node.produce(relay.target, {"cancel": [TOPIC, "a"]}) == {"cancelled": False}
    node.produce(relay.target, {"cancel": [TOPIC, nameless["timer_id"]]})
    assert stage.left(TOPIC) == (0, 0, 0)


def test_producer_waits_for_the_relay(stage: Stage) -> None:
    """A call that finds no relay is made again under the same id, until there is one."""
    relay = stage.relay()
    assert relay.terminate() == 0
    asked = {"schedule": {"topic": TOPIC, "timerId": "patient", "delayMs": 60_000}}
    script = node.Script(
        stage.directory, "producer", node.HERE / "producer.mjs", relay.target, json.dumps(asked)
    )
    stage.join(script).spawn()
    script.says("trying")
    relay.start()
    assert script.wait() == 0
    assert json.loads(script.output().splitlines()[-1])["timer_id"] == "patient"
    assert stage.left(TOPIC) == (1, 1, 0)


class _Silent(timer_service_pb2_grpc.TimerServiceServicer):
    """A relay that does not answer the first call. `came` has when each call came, in milliseconds since
    1970, and its timer's id."""

    def __init__(self) -> None:
        self.came: list[tuple[float, str]] = []

    def Schedule(
        self, request: timer_service_pb2.ScheduleRequest, context: grpc.ServicerContext
    ) -> timer_service_pb2.ScheduleResponse:
        self.came.append((time.time() * 1000, request.timer.timer_id))
        if len(self.came) == 1:
            over = threading.Event()
            if context.add_callback(over.set):
                over.wait(150)
        timer = timer_pb2.Timer(topic=TOPIC, timer_id=request.timer.timer_id)
        timer.due_time.FromSeconds(1)
        return timer_service_pb2.ScheduleResponse(timer=timer)


def test_producer_repeats_a_call_only_once_it_cannot_act(stage: Stage) -> None:
    """The first try may be carried out until its deadline, and the next one waits for that."""
    silent = _Silent()
    server = grpc.server(ThreadPoolExecutor(4))
    timer_service_pb2_grpc.add_TimerServiceServicer_to_server(silent, server)
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        asked = {"schedule": {"topic": TOPIC, "timerId": "a", "delayMs": 1}}
        done = node.run(node.HERE / "producer.mjs", [target, json.dumps(asked)])
    finally:
        server.stop(None)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["timer_id"] == "a"
    began = int(done.stderr.removeprefix("trying since "))
    assert [timer_id for _, timer_id in silent.came] == ["a", "a"]
    assert silent.came[1][0] >= began + 1000, "before the first try's deadline, by the clock of both"


# ------------------------------------------------------------ the scripts


@pytest.mark.parametrize("way", ["stream", "push"])
def test_the_scripts_as_the_readme_shows_them(stage: Stage, way: Way) -> None:
    """application.mjs and producer.mjs, over Unix sockets."""
    socket = f"unix:{stage.directory}/application.sock"
    Path(socket.removeprefix("unix:")).touch()  # what a killed application leaves behind
    settings = pushed("reminders", socket) if way == "push" else {}
    relay = stage.relay(settings=settings, listen=f"unix:{stage.directory}/relay.sock")
    arguments = ("push", socket, "reminders") if way == "push" else ("stream", "reminders")
    script = node.Script(
        stage.directory, "example", node.EXAMPLE / "application.mjs", *arguments, RELAY_TARGET=relay.target
    )
    stage.join(script).spawn()

    def produce(*words: str) -> str:
        done = node.run(node.EXAMPLE / "producer.mjs", words, RELAY_TARGET=relay.target)
        assert done.returncode == 0, done.stderr
        return done.stdout

    # Or a call that is repeated, since its answer was late, would bring back a timer that is over.
    assert command("pause", "reminders", "--target", relay.target).code == 0

    def first() -> bool:
        """A call that is repeated says what the last try has met: the timer of the one before."""
        produce("cancel", "reminders", "tea")
        return produce("schedule", "reminders", "tea", "--id", "tea", "--in", "60000").startswith("scheduled")

    eventually(first, "it is scheduled")
    assert produce("schedule", "reminders", "tea", "--id", "tea", "--in", "200").startswith("rescheduled")
    assert produce("schedule", "reminders", "flaky", "--id", "f", "--at", "2026-01-01T00:00:00Z").endswith(
        " for 1767225600000000 µs since 1970\n"
    )
    produce("schedule", "reminders", "wrong", "--id", "w")

    def cancelled() -> bool:
        produce("schedule", "reminders", "never", "--id", "n", "--in", "60000")
        return produce("cancel", "reminders", "n") == "cancelled\n"

    eventually(cancelled, "it is cancelled")
    assert produce("cancel", "reminders", "n") == "there is no such timer\n"
    assert command("resume", "reminders", "--target", relay.target).code == 0
    stage.wait_empty("reminders", dead=1)
    lines = script.output().splitlines()
    assert sorted(line for line in lines if line.startswith("reminders/")) == [
        "reminders/f: flaky (attempt 1)",
        "reminders/f: flaky (attempt 2)",
        "reminders/tea: tea (attempt 1)",
        "reminders/w: wrong (attempt 1)",
    ]
    assert script.terminate() == 0
    assert command("healthcheck", "--target", relay.target).code == 0, "the relay is well without it"


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("producer.mjs", []),
        ("producer.mjs", ["schedule", "reminders", "tea", "--in", "soon"]),
        ("producer.mjs", ["schedule", "reminders", "tea", "--at", "tomorrow"]),
        ("producer.mjs", ["schedule", "reminders", "tea", "--until", "x"]),
        ("application.mjs", ["nonsense"]),
    ],
)
def test_wrong_usage_of_the_example_is_one_line(program: str, arguments: list[str]) -> None:
    """Exit 2 and the usage, without a stack trace and before anything is dialled."""
    ended = node.run(node.EXAMPLE / program, arguments, RELAY_TARGET="127.0.0.1:1")
    assert (ended.returncode, ended.stdout) == (2, ""), ended
    assert ended.stderr.startswith(f"usage: node {program} ")
    assert ended.stderr.count("\n") == 1


def test_the_example_s_producer_schedules_and_cancels(stage: Stage) -> None:
    """What its usage says works as it says."""
    relay = stage.relay()

    def produce(*arguments: str) -> str:
        ended = node.run(node.EXAMPLE / "producer.mjs", arguments, RELAY_TARGET=relay.target)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    at = ("--at", "2030-01-31T09:00:00Z")

    def is_scheduled() -> bool:
        """A call that is repeated, since its answer was late, says what its last try has met."""
        produce("cancel", TOPIC, "x")
        said = produce("schedule", TOPIC, "tea", "--id", "x", *at)
        return said == f"scheduled {TOPIC}/x for 1896080400000000 µs since 1970\n"

    eventually(is_scheduled, "it is scheduled")

    def is_cancelled() -> bool:
        produce("schedule", TOPIC, "tea", "--id", "x", *at)
        moved = produce("schedule", TOPIC, "tea", "--id", "x", "--in", "3600000")
        assert moved.startswith("rescheduled ")
        return produce("cancel", TOPIC, "x") == "cancelled\n"

    eventually(is_cancelled, "it is cancelled")
