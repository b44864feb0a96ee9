"""Moved, cancelled, published again: before the due time, and while either side is at work on the timer.

What is asked of a timer that a relay delivers stands, whoever asks. What is asked of a timer that the peer
delivers can be undone by the commit at its handler's end, which is a bare removal.
"""

from __future__ import annotations

import anyio

from relay.core.instants import SECOND
from relay.core.outcomes import Verb, Verdict
from relay.core.partitions import Layout
from tests.interop.neighbours import Neighbours, fresh, now
from tests.interop.sides import Call, Failed, Side, cancel, empty, no_timers, publish, score, working
from tests.settlements import end_of
from tests.worlds.waiting import until

HOUR = 3600 * SECOND


async def test_a_timer_waits_for_its_due_time(pair: Neighbours, publisher: Side, worker: Side) -> None:
    """One that is due is handled, one that is due later is not, until it is."""
    await publish(pair, publisher, "later", due=now() + HOUR)
    async with working(pair, worker) as one:
        await publish(pair, publisher, "past", due=now() - HOUR)
        assert (await one.called()).timer_id == "past"
        due = now() + SECOND // 2  # and not before: the worker may take longer to start
        await publish(pair, publisher, "later", due=due)
        later = await one.called(2)
        await until(lambda: empty(pair))
    assert later.timer_id == "later"
    assert later.at >= due


async def test_published_twice_before_it_is_due(
    pair: Neighbours, publisher: Side, another: Side, worker: Side
) -> None:
    """It is one timer: called once, at the later time, with the later content, whoever wrote which."""
    await publish(pair, publisher, "a", b"first", now() + HOUR, {"by": "first"})
    due = now() + SECOND // 4
    await publish(pair, another, "a", b"second", due, {"by": "second"})
    async with working(pair, worker) as one:
        call = await one.called()
        await until(lambda: empty(pair))
    assert (call.body, call.headers["by"]) == (b"second", "second")
    assert call.at >= due
    assert len(one.calls) == 1


async def test_cancelled_before_it_is_due(
    pair: Neighbours, publisher: Side, another: Side, worker: Side
) -> None:
    """It is never handled, whoever cancels; one that was due after it is. Cancelling nothing is no error."""
    await publish(pair, publisher, "a", due=now() + SECOND // 10)
    await publish(pair, publisher, "after", due=now() + SECOND // 5)
    await cancel(pair, another)
    await cancel(pair, another)
    async with working(pair, worker) as one:
        await one.called()
        await until(lambda: empty(pair))
    assert [call.timer_id for call in one.calls] == ["after"]


async def test_cancelled_while_it_is_handled(
    pair: Neighbours, publisher: Side, another: Side, worker: Side
) -> None:
    """The handler goes on to its end, which changes nothing then: a failure brings nothing back."""
    hold, failed = anyio.Event(), anyio.Event()

    async def fails(_: Call) -> None:
        await hold.wait()
        failed.set()
        raise Failed

    await publish(pair, publisher)
    async with working(pair, worker, fails) as one:
        await one.called()
        await cancel(pair, another)
        assert await no_timers(pair)
        hold.set()
        await failed.wait()
    assert await empty(pair)
    assert len(one.calls) == 1


async def test_moved_while_a_relay_delivers_it(pair: Neighbours, publisher: Side) -> None:
    """The handler's ACK is void, and the timer comes again with what it was given meanwhile."""
    hold, far = anyio.Event(), now() + HOUR
    await publish(pair, "peer", "a", b"old")
    async with working(pair, "relay", lambda _: hold.wait()) as one:
        await one.called()
        await publish(pair, publisher, "a", b"meanwhile", far)
        hold.set()
        await until(lambda: one.ended == 1)
        assert await score(pair) == far, "while nobody holds it"
        due = now() + SECOND // 4
        await publish(pair, publisher, "a", b"new", due)
        call = await one.called(2)
        await until(lambda: empty(pair))
    assert (call.body, call.attempt) == (b"new", 1)
    assert call.at >= due


async def test_moved_while_the_peer_delivers_it(pair: Neighbours, publisher: Side) -> None:
    """The commit at its handler's end removes the new intent too, by whomever it was given: it is lost."""
    hold = anyio.Event()
    await publish(pair, "peer", "a", b"old")
    async with working(pair, "peer", lambda _: hold.wait()) as one:
        await one.called()
        await publish(pair, publisher, "a", b"new", now() + HOUR)
        assert await pair.store.get(pair.topic, "a") is not None
        hold.set()
        await until(lambda: empty(pair))
    assert len(one.calls) == 1


async def test_moved_while_the_peer_fails_to_deliver_it(pair: Neighbours, publisher: Side) -> None:
    """Its nack writes nothing: the new intent stands."""
    hold, due = anyio.Event(), now() + HOUR

    async def fails(_: Call) -> None:
        await hold.wait()
        raise Failed

    await publish(pair, "peer", "a", b"old")
    async with working(pair, "peer", fails) as one:
        await one.called()
        await publish(pair, publisher, "a", b"new", due)
        hold.set()
    timer = await pair.store.get(pair.topic, "a")
    assert timer is not None
    assert (timer.payload, timer.due) == (b"new", due)


async def test_a_handler_that_schedules_its_own_id(pair: Neighbours, publisher: Side) -> None:
    """At a relay that is how a timer repeats; at the peer the new timer dies with the old one."""

    async def again(call: Call) -> None:
        if len(ours.calls) == 1:
            await publish(pair, publisher, "a", b"again", now())

    await publish(pair, publisher)
    async with working(pair, "relay", again) as ours:
        assert (await ours.called(2)).body == b"again"
        await until(lambda: empty(pair))

    async def again_at_the_peer(_: Call) -> None:
        await publish(pair, publisher, "a", b"again", now() + HOUR)
        assert await score(pair) is not None

    await publish(pair, publisher)
    async with working(pair, "peer", again_at_the_peer) as theirs:
        await theirs.called()
        await until(lambda: empty(pair))
    assert theirs.ended == 1


async def test_a_late_commit_hits_a_newer_delivery(pair: Neighbours) -> None:
    """A handler of the peer's that outlived its lease removes what a relay delivers by then: the relay's
    application goes on to its end, and a NACK of its is void, so that the timer does not come again."""
    their_hold, our_hold = anyio.Event(), anyio.Event()

    async def fails(_: Call) -> None:
        await our_hold.wait()
        raise Failed

    await publish(pair, "peer")
    async with working(pair, "peer", lambda _: their_hold.wait(), lease=0.1) as theirs:
        await theirs.called()
        async with working(pair, "relay", fails, lease=5.0) as ours:
            await ours.called()
            their_hold.set()
            await until(lambda: no_timers(pair))
            our_hold.set()
            await until(lambda: empty(pair))
    assert len(ours.calls) == 1


async def test_everything_cancelled_while_it_is_handled(pair: Neighbours, worker: Side) -> None:
    """The peer's cancel_all takes pending timers and those in flight; handlers end, and nothing is left."""
    hold = anyio.Event()
    await publish(pair, "relay", "later", due=now() + HOUR)
    await publish(pair, "peer", "now")
    async with working(pair, worker, lambda _: hold.wait()) as one:
        await one.called()
        assert await pair.broker.cancel_all(pair.topic) == 2
        hold.set()
        await until(lambda: one.ended == 1)
        await until(lambda: empty(pair))
        assert (await pair.claim(fresh())).next is None


async def test_a_pause_that_a_relay_gave(pair: Neighbours, worker: Side) -> None:
    """A NACK with retry_after holds for the peer as well: it handles the timer then, and not before."""
    nonce = fresh()
    await publish(pair, "peer")
    await pair.one(nonce)
    begun = now()
    pause = end_of("a", nonce, Verb.NACK, retry_after=SECOND // 2)
    assert await pair.store.settle(pair.topic, [pause]) == [Verdict.OK]
    due = await score(pair)
    assert due is not None
    assert due >= begun + SECOND // 2
    async with working(pair, worker) as one:
        assert (await one.called()).at >= due
        await until(lambda: no_timers(pair))
    await cancel(pair, "relay")
    assert await empty(pair)


async def test_topics_do_not_mix(pair: Neighbours, publisher: Side, worker: Side) -> None:
    """A worker of one topic is not given the timers of another."""
    await publish(pair, publisher)
    async with working(pair, worker, topic=f"{pair.topic}-other") as other, working(pair, worker) as one:
        await one.called()
        await until(lambda: empty(pair))
    assert other.calls == []


async def test_each_sees_the_others_timers(pair: Neighbours, publisher: Side, worker: Side) -> None:
    """Pending timers are listed by both. One that a worker holds is pending to the peer, and to a relay if
    it is the peer that holds it."""
    hold = anyio.Event()
    await publish(pair, publisher, "later", due=now() + HOUR)
    await publish(pair, publisher, "held")
    async with working(pair, worker, lambda _: hold.wait()) as one:
        await one.called()
        assert sorted(await pair.broker.get_pending_timers(pair.topic)) == ["held", "later"]
        page = await pair.store.list(Layout(pair.topic), state=None, limit=10, cursor="")
        states = {timer.timer_id: timer.state.value for timer in page.timers}
        held = "leased" if worker == "relay" else "pending"
        assert {name: state.lower() for name, state in states.items()} == {"held": held, "later": "pending"}
        hold.set()
        await until(lambda: one.ended == 1)
    await cancel(pair, "peer", "later")
