"""The blocking client, against a real relay on a real Valkey."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import threading
import time
import typing
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import relay.client.client
import relay.client.sync
from relay.client import (
    CallError,
    ChangeResult,
    DeadlineExceeded,
    InvalidArgument,
    NewTimer,
    NotFound,
    OnConflict,
    RelayClient,
    SyncRelayClient,
    TimerState,
    Unavailable,
)
from relay.client.calls import timer_calls
from relay.client.typed_topics import SyncTypedTopic, TypedTopic
from tests.client.test_calls import GOOD, WRONG
from tests.servers import free_port
from tests.worlds.relay.processes import ROOT, Relay, environment
from tests.worlds.relay.stage import one_relay
from tests.worlds.waiting import PATIENCE, eventually

OF_HANDLERS = {"on", "open", "aclose", "run", "stop", "ready", "wait_ready"}
"""What `RelayClient` has because it handles timers and belongs to an event loop."""


@pytest.fixture(scope="module")
def daemon() -> Iterator[Relay]:
    with one_relay() as relay:
        yield relay


@pytest.fixture
def client(daemon: Relay) -> Iterator[SyncRelayClient]:
    with SyncRelayClient(daemon.target, timeout=PATIENCE) as client:
        yield client


# ------------------------------------------------------------------------ one surface


def public(owner: type) -> dict[str, Callable[..., Any]]:
    return {name: member for name, member in vars(owner).items() if name[0] != "_" and callable(member)}


def test_it_has_every_call_of_the_other_client() -> None:
    """A call that only one of the two has fails here."""
    assert set(public(SyncRelayClient)) - {"close"} == set(public(RelayClient)) - OF_HANDLERS


@pytest.mark.parametrize("name", sorted(set(public(RelayClient)) - OF_HANDLERS))
def test_a_call_takes_and_returns_the_same(name: str) -> None:
    """Names, kinds, defaults and types of the arguments; and the result, but for the awaiting. What `topic`
    returns has calls of its own."""
    there, here = public(RelayClient)[name], public(SyncRelayClient)[name]
    assert inspect.signature(there).parameters == inspect.signature(here).parameters
    result = typing.get_type_hints(there, vars(relay.client.client))["return"]
    if typing.get_origin(result) is AsyncIterator:
        result = Iterator[typing.get_args(result)]  # type: ignore[misc]
    blocking = typing.get_type_hints(here, vars(relay.client.sync))["return"]
    if typing.get_origin(result) is not TypedTopic:
        assert blocking == result
        return
    assert typing.get_origin(blocking) is SyncTypedTopic
    assert public(SyncTypedTopic).keys() == public(TypedTopic).keys() != set()
    for call, its in public(SyncTypedTopic).items():
        assert inspect.signature(its).parameters == inspect.signature(public(TypedTopic)[call]).parameters


def test_both_are_made_alike() -> None:
    there, here = inspect.signature(RelayClient).parameters, inspect.signature(SyncRelayClient).parameters
    assert {name: there[name] for name in here} == dict(here)


# --------------------------------------------------------------------------- the calls


@pytest.mark.usefixtures("one_try")
def test_the_life_of_a_timer(client: SyncRelayClient) -> None:
    """Schedule, read, list, replace, cancel: what comes back is what was stored."""
    due = datetime(2030, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    stored = client.schedule(
        "life", b"42", due_time=due, timer_id="ü", headers={"k": "ö"}, content_type="text/plain"
    )
    assert (stored.due_time, stored.state, stored.replaced) == (due, TimerState.PENDING, False)
    timer = client.get("life", "ü")
    assert timer is not None
    assert (timer.payload, timer.headers, timer.content_type) == (b"42", {"k": "ö"}, "text/plain")
    assert client.schedule("life", b"43", delay=timedelta(days=1), timer_id="ü").replaced
    assert [each.timer_id for each in client.list("life")] == ["ü"]
    assert client.cancel("life", "ü").result is ChangeResult.CANCELLED
    assert client.cancel("life", "ü").result is ChangeResult.NOT_FOUND
    assert client.get("life", "ü") is None


@pytest.mark.usefixtures("one_try")
def test_changes_on_condition(client: SyncRelayClient) -> None:
    """Created once, moved by who knows its due time, run, expired: each answer says what it did."""
    first = client.schedule("changes", b"1", delay=60, timer_id="a", create_only=True)
    again = client.schedule("changes", b"2", delay=90, timer_id="a", create_only=True)
    assert (first.result, again.result) == (ChangeResult.CREATED, ChangeResult.UNCHANGED)
    assert again.due_time == first.due_time
    moved = client.schedule("changes", b"3", delay=90, timer_id="a", only_if_due_at=first.due_time)
    assert moved.result is ChangeResult.REPLACED
    late = client.cancel("changes", "a", only_if_due_at=first.due_time, only_if_pending=True)
    assert late.result is ChangeResult.UNCHANGED
    assert client.run_timer("changes", "a").result is ChangeResult.RUN
    timer = client.get("changes", "a")
    assert timer is not None
    assert (timer.payload, timer.state) == (b"3", TimerState.PENDING)
    assert timer.due_time < first.due_time
    assert client.cancel("changes", "a", only_if_due_at=timer.due_time)
    assert client.run_timer("changes", "a").result is ChangeResult.NOT_FOUND
    with pytest.raises(NotFound):
        client.schedule("changes", b"4", delay=1, timer_id="a", only_if_pending=True)
    new = NewTimer(topic="changes", payload=b"", delay=60, timer_id="b", expire_after=timedelta(hours=1))
    results = client.schedule_batch([new, new], create_only=True)
    assert [result.timer and result.timer.result for result in results] == [
        ChangeResult.CREATED,
        ChangeResult.UNCHANGED,
    ]


@pytest.mark.usefixtures("one_try")
def test_timers_that_meet(client: SyncRelayClient) -> None:
    """The earliest stands; a debounced one moves until its limit."""
    first = client.schedule("meeting", b"1", delay=60, timer_id="a")
    kept = client.schedule("meeting", b"2", delay=90, timer_id="a", on_conflict=OnConflict.KEEP_EARLIEST)
    assert (kept.result, kept.due_time) == (ChangeResult.UNCHANGED, first.due_time)
    moved = client.schedule("meeting", b"3", timer_id="a", debounce=80, at_most=100)
    (again,) = client.schedule_batch([NewTimer(topic="meeting", payload=b"4", timer_id="a", debounce=900)])
    assert again.timer is not None
    assert again.timer.due_time - moved.due_time == timedelta(seconds=20)


def test_a_batch_has_a_result_for_each_and_a_list_its_pages(client: SyncRelayClient) -> None:
    """A timer that the relay refuses hinders no other."""
    timers = [NewTimer(topic="batch", payload=b"", delay=60 + n, timer_id=f"{n:04}") for n in range(1_203)]
    timers.insert(7, NewTimer(topic="batch", payload=b"x" * (1 << 20) + b"x", delay=60, timer_id="big"))
    results = client.schedule_batch(iter(timers))
    assert [result.timer_id for result in results] == [timer.timer_id for timer in timers]
    (refused,) = [result for result in results if not result.ok]
    assert (refused.timer_id, type(refused.error)) == ("big", InvalidArgument)
    found = [each.timer_id for each in client.list("batch", page_size=500)]
    assert found == [f"{n:04}" for n in range(1_203)]


@pytest.mark.parametrize(("field", "wrong"), WRONG)
def test_wrong_arguments_are_refused_before_the_call(field: str, wrong: dict[str, object]) -> None:
    """As the other client refuses them; nobody listens at this address, and nobody is asked."""
    with SyncRelayClient(f"127.0.0.1:{free_port()}") as client:
        with pytest.raises(InvalidArgument) as caught:
            client.schedule(**{**GOOD, **wrong})  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="page_size"):
            client.list("t", page_size=0)
    assert caught.value.field == field


def test_what_the_relay_refuses_names_the_field(client: SyncRelayClient) -> None:
    with pytest.raises(InvalidArgument) as caught:
        client.schedule("t", b"x" * (2 << 20), delay=1)
    assert caught.value.field == "payload"


# --------------------------------------------------------------- trouble on the way


def test_nobody_there_is_an_error_in_time() -> None:
    """The timeout bounds the call, its retries and their pauses."""
    with SyncRelayClient(f"127.0.0.1:{free_port()}", timeout=0.5) as client:
        began = time.monotonic()
        with pytest.raises((Unavailable, DeadlineExceeded)):
            client.schedule("t", b"", delay=1)
    assert time.monotonic() - began < 90


def test_a_relay_that_goes_away_and_comes_back_is_waited_for(
    daemon: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is repeated under one id until the relay answers; later calls need no new client."""
    # By default a busy relay may act by one try and answer only the next, which replaces the timer.
    monkeypatch.setattr(timer_calls, "TRY_TIMEOUT", 8.0)
    with SyncRelayClient(daemon.target) as client, ThreadPoolExecutor(1) as pool:
        before = client.schedule("away", b"1", delay=60)
        daemon.kill()
        waiting = pool.submit(client.schedule, "away", b"2", delay=61, timeout=60)
        with pytest.raises((Unavailable, DeadlineExceeded)):
            client.get("away", before.timer_id, timeout=0.5)
        daemon.start()
        after = waiting.result(timeout=60)
        assert not after.replaced
        assert [each.timer_id for each in client.list("away")] == [before.timer_id, after.timer_id]


def test_a_close_ends_calls_of_other_threads_and_is_not_for_ever() -> None:
    """The thread that waits gets an error at once; the next call dials anew."""
    client = SyncRelayClient(f"127.0.0.1:{free_port()}")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.schedule, "t", b"", delay=1, timeout=60)
        eventually(lambda: client._here().wire, "it has dialled")
        client.close()
        with pytest.raises(CallError, match="closed"):
            waiting.result(timeout=30)
    with pytest.raises((Unavailable, DeadlineExceeded)):
        client.get("t", "x", timeout=0.1)
    client.close()
    client.close()


@pytest.mark.slow
def test_threads_share_one_client_and_one_channel(daemon: Relay) -> None:
    """Eight threads begin at the same moment; one of them dials."""
    client, start = SyncRelayClient(daemon.target), threading.Barrier(8)

    def work(number: int) -> object:
        start.wait()
        for n in range(25):
            client.schedule("threads", b"", delay=60, timer_id=f"{number}-{n}")
        return client._wire()

    with client, ThreadPoolExecutor(8) as pool:
        wires = list(pool.map(work, range(8)))
        assert len(set(map(id, wires))) == 1
        assert len(list(client.list("threads", page_size=500))) == 200


# ------------------------------------------------------------------------------ forks

FORKED = """
import json, os, signal, sys, time
from relay.client import RelayError, SyncRelayClient

target, first, timeout = sys.argv[1], sys.argv[2], float(sys.argv[3])
client = SyncRelayClient(target)
if first == "parent":
    client.schedule("forks", b"", delay=60, timer_id=f"{os.getpid()}", timeout=60)
children = []
for _ in range(3):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(80)  # a child that hangs outlives nobody
        began = time.monotonic()
        try:
            client.schedule("forks", b"", delay=60, timer_id=f"{os.getpid()}", timeout=timeout)
            said = "OK"
        except RelayError as error:
            said = type(error).__name__
        os.write(write, json.dumps([said, time.monotonic() - began]).encode())
        # With its fork support off, gRPC's own end may hang or abort in a child: that is not ours to test.
        (os._exit if os.environ.get("GRPC_ENABLE_FORK_SUPPORT") == "0" else sys.exit)(0)
    os.close(write)
    children.append((child, read))
for child, read in children:
    print(os.read(read, 1000).decode())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
if first == "parent":
    client.schedule("forks", b"", delay=60, timer_id=f"{os.getpid()}", timeout=60)
"""


def forked(target: str, first: str, timeout: float, **variables: str) -> list[tuple[str, float]]:
    """Run the above; what each child said, and after how many seconds."""
    done = subprocess.run(
        # From 3.12 on, Python warns of what this is about.
        [
            sys.executable,
            "-W",
            "error",
            "-W",
            "ignore:This process",
            "-c",
            FORKED,
            target,
            first,
            str(timeout),
        ],
        cwd=ROOT,
        env=environment(variables),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("first", ["child", "parent"])
def test_a_client_of_before_the_fork_works_after_it(daemon: Relay, first: str) -> None:
    """As in a pre-forking web server: each worker dials for itself, whether or not its parent has."""
    said = forked(daemon.target, first, 20)
    assert [answer for answer, _ in said] == ["OK"] * 3


@pytest.mark.slow
def test_a_fork_that_grpc_does_not_survive_is_an_error_in_time(daemon: Relay) -> None:
    """With gRPC's fork support off its timers are dead in the child: the deadline holds all the same."""
    said = forked(daemon.target, "parent", 0.5, GRPC_ENABLE_FORK_SUPPORT="0")
    assert [answer for answer, _ in said] == ["DeadlineExceeded"] * 3
    assert max(seconds for _, seconds in said) < 40


def test_a_process_may_end_without_a_close(daemon: Relay) -> None:
    """As module-level clients do: no warning, no hang, exit code 0."""
    script = (
        "import sys; from relay.client import SyncRelayClient; client = SyncRelayClient(sys.argv[1]);"
        "print(client.schedule('exit', b'', delay=60).state.value)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, daemon.target],
        cwd=ROOT,
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "pending\n", "")


def test_the_parent_s_channel_is_left_alone_in_the_child(daemon: Relay) -> None:
    """Each process has a place of its own: the parent's lock and channel stay the parent's."""
    client = SyncRelayClient(daemon.target)
    theirs = client._dialled[os.getpid() + 1] = relay.client.sync._Dialled()
    with theirs.lock, client:  # as if a thread of the parent had held it while the fork happened
        assert client.get("t", "nothing") is None
    assert theirs.wire is None
