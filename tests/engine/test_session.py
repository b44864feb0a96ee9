"""What one stream holds, sends and complains about."""

from __future__ import annotations

import anyio
import pytest

from relay.core.timers import ClaimedTimer
from relay.engine.delivery.session import (
    FRAME_BYTES,
    FRAME_PROBLEMS,
    FRAME_TIMERS,
    HOLD,
    LIGHT,
    MAX_PROBLEMS,
    QUICK,
    Outgoing,
    Problem,
    Session,
)
from tests.worlds.engine.fake_clock import FakeClock, settle
from tests.worlds.engine.leased import leased


def timer(
    name: str, *, size: int = 1, suspect: bool = False, headers: dict[str, str] | None = None
) -> ClaimedTimer:
    return ClaimedTimer(name, bytes(size), headers or {}, "", 0, 1, name, suspect=suspect)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def session(clock: FakeClock) -> Session:
    return Session(["t"], 10_000, clock)


def names(outgoing: Outgoing | None) -> list[str]:
    assert outgoing is not None
    return [lease.timer_id for lease in outgoing.leases]


def ended(session: Session, tokens: str) -> list[str]:
    """The timers that these tokens, a letter each, end: those of a claim together."""
    places = session.end([token.encode() for token in tokens])
    return [leases[place].timer_id for leases, some in places.items() for place in some]


def test_sends_what_is_there_in_one_frame_in_order(session: Session) -> None:
    """Offers of several claims travel together."""
    session.offer(leased(timer("a"), timer("b")))
    session.offer(leased(timer("c")))
    assert names(session.take()) == ["a", "b", "c"]
    assert names(session.take()) == []


def test_a_frame_ends_at_its_count(session: Session) -> None:
    """The rest goes into the next."""
    session.offer(leased(*[timer(f"{n}") for n in range(FRAME_TIMERS + 1)]))
    assert len(names(session.take())) == FRAME_TIMERS
    assert names(session.take()) == [f"{FRAME_TIMERS}"]


def test_a_frame_ends_at_its_bytes(session: Session) -> None:
    """Large payloads do not make a message that the application would refuse."""
    session.offer(leased(*[timer(f"{n}", size=FRAME_BYTES // 2) for n in range(3)]))
    assert names(session.take()) == ["0", "1"]
    assert names(session.take()) == ["2"]


def test_headers_count_into_a_frame_too(session: Session) -> None:
    """500 timers with 64 KiB of headers each would be a message of 32 MiB."""
    headers = {"h": "x" * 60_000}
    session.offer(leased(*[timer(f"{n}", headers=headers) for n in range(100)]))
    assert len(names(session.take())) <= 2 + FRAME_BYTES // 60_000


def test_the_first_delivery_goes_whatever_its_size(session: Session) -> None:
    """A foreign publisher knows no limit."""
    session.offer(leased(timer("a", size=10 * FRAME_BYTES), timer("b")))
    assert names(session.take()) == ["a"]
    assert names(session.take()) == ["b"]


def test_suspects_go_one_by_one(session: Session, clock: FakeClock) -> None:
    """Each alone, and the next only once the one before is settled."""
    session.offer(leased(*[timer(name, suspect=True) for name in "abc"]))
    for name in "abc":
        assert names(session.take()) == [name]
        assert names(session.take()) == []
        session.end([name.encode()])


def test_others_wait_for_one_suspect_and_not_for_all(session: Session) -> None:
    """They go behind the next one, and those that come while it has its time go with them."""
    session.offer(leased(timer("a", suspect=True), timer("b", suspect=True), timer("c"), timer("d")))
    assert names(session.take()) == ["a"]
    session.offer(leased(timer("e"), timer("f", suspect=True)))
    assert names(session.take()) == []
    session.end([b"a"])
    assert names(session.take()) == ["c", "d", "e"]
    session.offer(leased(timer("g")))
    assert names(session.take()) == [], "the next suspect waits for those in flight, and goes first"
    ended(session, "cde")
    assert names(session.take()) == ["b"]
    session.end([b"b"])
    assert names(session.take()) == ["g"]
    session.end([b"g"])
    assert names(session.take()) == ["f"]


async def test_suspects_wait_once_for_what_runs_long(session: Session, clock: FakeClock) -> None:
    """For as long as nothing else is sent, which they would have to wait for."""
    session.offer(leased(timer("long"), timer("a", suspect=True), timer("b", suspect=True)))
    session.take()
    assert names(session.take()) == []
    await clock.advance(HOLD)
    assert names(session.take()) == ["a"]
    session.end([b"a"])
    assert names(session.take()) == ["b"]
    session.offer(leased(timer("new"), timer("c", suspect=True)))
    session.end([b"b"])
    assert names(session.take()) == ["new"]
    session.end([b"new"])
    assert names(session.take()) == []
    await clock.advance(HOLD)
    assert names(session.take()) == ["c"]


def test_a_suspect_waits_until_nothing_else_is_in_flight(session: Session) -> None:
    """Else its crash would count against the others."""
    session.offer(leased(timer("a"), timer("b", suspect=True), timer("c")))
    assert names(session.take()) == ["a"]
    assert names(session.take()) == []
    session.end([b"a"])
    assert names(session.take()) == ["b"]
    session.end([b"b"])
    assert names(session.take()) == ["c"]


async def test_a_suspect_holds_the_stream_up_only_so_long(session: Session, clock: FakeClock) -> None:
    """A long handler must not block its stream: after HOLD it is taken for harmless."""
    session.offer(leased(timer("a"), timer("b", suspect=True), timer("c")))
    session.take()
    assert names(session.take()) == []
    await clock.advance(HOLD)
    assert names(session.take()) == ["b"]
    await clock.advance(HOLD - 0.01)
    assert names(session.take()) == []
    await clock.advance(0.01)
    assert names(session.take()) == ["c"]


async def test_suspects_that_run_long_cost_one_hold_each(session: Session, clock: FakeClock) -> None:
    """One that had its time alone and still runs does not make the next one wait again."""
    session.offer(leased(*[timer(name, suspect=True) for name in "abc"]))
    assert names(session.take()) == ["a"]
    await clock.advance(HOLD)
    assert names(session.take()) == ["b"]
    await clock.advance(HOLD)
    assert names(session.take()) == ["c"]


async def test_waiting_for_a_suspect_ends_by_itself(session: Session, clock: FakeClock) -> None:
    """`next` needs nobody to wake it when HOLD is over."""
    session.offer(leased(timer("a", suspect=True), timer("b")))
    said: list[list[str]] = []

    async def say() -> None:
        while True:
            said.append(names(await session.next()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(say)
        await settle()
        assert said == [["a"]]
        await clock.advance(HOLD)
        assert said == [["a"], ["b"]]
        session.offer(leased(timer("c", suspect=True), timer("d")))
        await clock.advance(HOLD)
        assert said == [["a"], ["b"], ["c"]], "a and b are in flight for longer than HOLD"
        session.end([b"c"])
        await settle()
        assert said == [["a"], ["b"], ["c"], ["d"]]
        tasks.cancel_scope.cancel()


async def test_a_suspect_that_was_given_up_leaves_no_hold_behind(session: Session, clock: FakeClock) -> None:
    """The next suspect waits its own time for what is in flight."""
    session.offer(leased(timer("a"), timer("b", suspect=True)))
    session.take()
    session.take()
    session.give_up([b"b"])
    await clock.advance(10.0)
    session.offer(leased(timer("c", suspect=True)))
    assert names(session.take()) == []


def test_a_token_that_was_never_given_is_unknown(session: Session) -> None:
    """Also a receipt's."""
    assert session.end([b"?"]) == {}
    assert session.received([b"!"]) == []
    assert session.take().problems == [(b"?", Problem.UNKNOWN_TOKEN), (b"!", Problem.UNKNOWN_TOKEN)]


def test_a_second_settlement_is_a_duplicate(session: Session) -> None:
    """The first one stands."""
    session.offer(leased(timer("a")))
    session.take()
    assert session.end([b"a"]) != {}
    assert session.end([b"a"]) == {}
    assert session.take().problems == [(b"a", Problem.DUPLICATE)]


def test_what_has_not_been_sent_cannot_be_settled(session: Session) -> None:
    """Tokens of one claim follow one another: who makes one up ends no delivery that nobody has seen."""
    session.offer(leased(timer("a"), timer("b", suspect=True)))
    assert names(session.take()) == ["a"]
    assert session.end([b"b"]) == {}
    assert session.received([b"b"]) == []
    assert session.take().problems == [(b"b", Problem.UNKNOWN_TOKEN)] * 2
    assert [each.timer.timer_id for each in session.drain(say=False)] == ["b"]


def test_what_is_said_about_a_delivery_that_was_given_up_is_stale(session: Session) -> None:
    """The application hears why."""
    session.offer(leased(timer("a")))
    session.give_up([b"a"])
    session.give_up([b"a"])
    assert session.end([b"a"]) == {}
    assert session.take().problems == [(b"a", Problem.STALE)]
    assert session.free == session.max_outstanding


def test_a_delivery_that_was_given_up_before_it_was_sent_is_not_sent(session: Session) -> None:
    """Its lease is over."""
    session.offer(leased(timer("a"), timer("b")))
    session.give_up([b"a"])
    assert names(session.take()) == ["b"]


def test_one_that_was_given_up_among_many(session: Session) -> None:
    """The others go out in their order, together as ever; and all of them are counted."""
    session.offer(leased(*map(timer, "abcde")))
    session.offer(leased(*map(timer, "fgh")))
    session.give_up([b"f", b"c", b"h", b"?"])
    session.give_up([b"a"])
    assert (len(session.leases), session.in_flight) == (4, 0)
    assert names(session.take()) == ["b", "d", "e", "g"]
    assert session.in_flight == 4
    assert ended(session, "gedb") == ["g", "e", "d", "b"]
    assert (session.in_flight, session.free) == (0, session.max_outstanding)


def test_an_end_frees_its_payload(session: Session) -> None:
    """One slow handler must not keep the payloads of all that were claimed with its timer."""
    leases = leased(*(timer(name, size=5) for name in ("slow", "a", "silent")))
    session.offer(leases)
    session.take()
    session.end([b"a"])
    session.give_up([b"silent"])
    assert [len(payload) for payload in leases.timers.payloads] == [5, 0, 0]


def test_counts_its_places(session: Session) -> None:
    """Free is what is neither held nor kept for a claim; none while it drains."""
    session.max_outstanding = 3
    session.offer(leased(timer("a")))
    session.reserved = 1
    assert session.free == 1
    session.drain(say=False)
    assert session.free == 0


async def test_holds_more_while_deliveries_are_quick(clock: FakeClock) -> None:
    """Each quick end earns a place, until a slow one, or until one in flight has waited for too long; and
    whoever waits for room hears of it."""
    session = Session(["t"], 5, clock, slow_outstanding=2)
    grown = []
    session.changed = lambda session: grown.append(session.free)
    session.offer(leased(timer("a"), timer("b")))
    session.take()
    assert session.free == 0
    await clock.advance(QUICK - 0.001)
    session.end([b"a"])
    assert (session.places, session.free, grown) == (3, 2, [2])
    session.offer(leased(timer("c"), timer("d")))
    await clock.advance(0.002)  # by now b is slow
    assert (session.places, session.free) == (2, -1)
    session.take()
    session.end([b"c"])
    assert session.places == 2
    session.end([b"b"])  # the slow one
    assert (session.places, session.free, grown) == (2, 1, [2, 1])
    session.offer(leased(*[timer(name) for name in "efghij"]))
    session.take()
    session.end([name.encode() for name in "efghij"])
    assert session.places == 5, "never more than it asked for"
    await clock.advance(QUICK + 0.001)
    session.end([b"d"])
    assert session.places == 2


async def test_what_was_quick_before_a_rest_earns_nothing(clock: FakeClock) -> None:
    """A burst of slow timers would all go to the application that was quick last; and the places are earned
    anew."""
    session = Session(["t"], 5, clock, slow_outstanding=2)
    session.offer(leased(timer("a"), timer("b")))
    session.take()
    session.end([b"a", b"b"])
    await clock.advance(QUICK - 0.001)
    assert session.places == 4
    await clock.advance(0.002)
    assert session.places == 2
    session.offer(leased(timer("c")))
    session.take()
    assert session.places == 2
    session.end([b"c"])
    assert session.places == 3


def test_holds_more_only_while_it_is_light(clock: FakeClock) -> None:
    """Of large payloads as many as if they took long; and whatever leaves makes it lighter."""
    session = Session(["t"], 5, clock, slow_outstanding=2)

    def send(*timers: ClaimedTimer) -> None:
        session.offer(leased(*timers))
        while session.take().parts:
            pass

    send(*map(timer, "abc"))
    session.end([b"a", b"b", b"c"])
    assert session.places == 5
    for leave in (
        lambda: session.end([b"large", b"unsent"]),
        lambda: session.give_up([b"large"]),
        lambda: session.resize(0),
        lambda: session.drain(say=False),
        session.close,
    ):
        send(timer("large", size=LIGHT - 10), timer("small", size=11))
        assert session.places == 2
        session.end([b"small"])
        assert session.places == 5
        session.offer(leased(timer("unsent", size=11)))
        assert session.places == 2
        leave()
        session.max_outstanding, session.draining = 5, False
        while session.take().parts:
            pass
        session.end(list(session.leases))
        assert session.places == 5


def test_a_drain_takes_back_what_was_not_sent(session: Session) -> None:
    """After Drain no further deliveries go out, from whichever side it came."""
    session.offer(leased(timer("a")))
    session.take()
    session.offer(leased(timer("b"), timer("c")))
    assert [lease.timer.timer_id for lease in session.drain(say=True)] == ["b", "c"]
    outgoing = session.take()
    assert outgoing.drain
    assert outgoing.parts == []
    assert session.end([b"a"]) != {}
    assert session.end([b"b"]) == {}


def test_drain_is_said_once_and_not_unsaid(session: Session) -> None:
    """The application's own Drain, just behind the relay's, does not swallow it."""
    session.drain(say=True)
    session.drain(say=False)
    assert session.take().drain
    assert not session.take().drain


def test_remembers_ended_deliveries_only_so_long() -> None:
    """Two to four times max_outstanding: a stream may live for months."""
    session = Session(["t"], 2, FakeClock())
    for n in range(100):
        session.offer(leased(timer(f"{n}")))
        session.take()
        session.end([f"{n}".encode()])
    assert len(session._ended) <= 10
    session.end([b"99"])
    session.end([b"0"])
    assert [problem for _, problem in session.take().problems] == [
        Problem.DUPLICATE,
        Problem.UNKNOWN_TOKEN,
    ]


def test_problems_are_said_in_messages_of_bounded_size(session: Session) -> None:
    """When somebody empties Redis, all in flight is gone: the application must be able to read that."""
    for n in range(2 * FRAME_PROBLEMS + 1):
        session.complain(f"{n}".encode(), Problem.GONE)
    sizes = [len(session.take().problems) for _ in range(4)]
    assert sizes == [FRAME_PROBLEMS, FRAME_PROBLEMS, 1, 0]


async def test_an_application_that_does_not_listen_to_problems_is_not_listened_to(session: Session) -> None:
    """Else its nonsense would fill the relay's memory."""
    for n in range(MAX_PROBLEMS + 1):
        session.end([f"{n}".encode()])
    heard = False

    async def listen() -> None:
        nonlocal heard
        await session.listening()
        heard = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        await settle()
        assert not heard
        session.take()
        await settle()
        assert heard


async def test_finished_ends_the_conversation_after_the_last_word(session: Session) -> None:
    """What is still to be said comes first."""
    session.complain(b"?", Problem.GONE)
    session.finish()
    last = await session.next()
    assert last is not None
    assert last.problems
    assert await session.next() is None


def test_what_is_in_flight_is_counted(session: Session) -> None:
    """Whatever becomes of what waits."""
    session.offer(leased(timer("a"), timer("b")))
    session.take()
    session.offer(leased(timer("c")))
    assert session.in_flight == 2
    assert [lease.timer_id for lease in session.resize(0)] == ["c"]
    assert session.in_flight == 2
    session.max_outstanding = 10
    session.offer(leased(timer("d")))
    session.close()
    assert session.in_flight == 0


def test_few_that_are_left_let_go_of_the_others(session: Session, clock: FakeClock) -> None:
    """One slow handler must not keep all that is known of what was claimed with its timer."""
    session.offer(leased(*map(timer, "abcdefghi")))
    session.offer(leased(timer("unsent", suspect=True)))
    session.take()
    session.received([b"h"])
    session.end([name.encode() for name in "abdef"])
    session.tidy()
    assert len(session.leases[b"h"].leases) == 9, "nearly half are no few"
    session.end([b"c", b"g"])
    session.tidy()
    assert len(session.leases[b"h"].leases) == 2
    assert [(lease.timer_id, lease.received, lease.sent) for lease in session.leases.values()] == [
        ("h", True, True),
        ("i", False, True),
        ("unsent", False, False),
    ]
    session.lose(b"h", Problem.STALE)
    assert session.leases[b"h"].lost
    assert ended(session, "ih") == ["i", "h"]
    assert names(session.take()) == ["unsent"]
