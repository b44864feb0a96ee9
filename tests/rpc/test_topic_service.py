"""`TopicService`; and modes, conditions and RESCHEDULE, over the wire."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from relay.core.dispatch import Dispatch
from relay.core.policy import DeadLetterPolicy
from relay.v1 import delivery_service_pb2 as delivery
from relay.v1 import timer_pb2
from relay.v1 import timer_service_pb2 as service
from relay.v1 import topic_service_pb2 as pb
from relay.v1.topic_service_pb2_grpc import TopicServiceStub
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.worlds.engine.served import Served
from tests.worlds.engine.stubs import ACK, NACK, REJECT, at, invalid_field, refused, settlement, spec
from tests.worlds.waiting import until

MINUTE = Duration(seconds=60)


def topics(relay: Served) -> Any:
    return TopicServiceStub(relay.channel)


async def schedule(relay: Served, topic: str, timer_id: str, mode: Any = 0, **fields: Any) -> Any:
    condition = fields.pop("condition", None)
    timer = spec(timer_id, topic=topic, **fields)
    return await relay.timers.Schedule(service.ScheduleRequest(timer=timer, mode=mode, condition=condition))


async def kill(relay: Served, topic: str, *names: str, reason: str = "no good") -> list[pb.DeadLetter]:
    """Let timers die by REJECT; answers all dead letters of the topic."""
    for name in names:
        await schedule(relay, topic, name, payload=f"of {name}".encode(), headers={"kind": "x"})
    stream = await relay.stream().open(topic)
    for one in await stream.deliveries(len(names)):
        await stream.settle(settlement(one.token, REJECT, reason=reason))
    await stream.send(drain=delivery.Drain())
    await stream.finish()
    return list((await topics(relay).ListDeadLetters(pb.ListDeadLettersRequest(topic=topic))).dead_letters)


# ------------------------------------------------------------------------- TimerService


async def test_create_only_changes_nothing_that_is_there(any_relay: Served, keyspace: Keyspace) -> None:
    """The answer to a repeated call tells of the timer that is there."""
    topic = keyspace.topic()
    create = service.SCHEDULE_MODE_CREATE
    first = await schedule(any_relay, topic, "a", create, due_time=at(4_000_000_000), payload=b"first")
    again = await schedule(any_relay, topic, "a", create, due_time=at(4_000_000_999), payload=b"second")
    assert first.result == timer_pb2.CHANGE_RESULT_CREATED
    assert again.result == timer_pb2.CHANGE_RESULT_UNCHANGED
    assert again.timer.due_time == at(4_000_000_000)
    stored = await any_relay.engine.get(topic, "a")
    assert stored is not None
    assert stored.payload == b"first"
    replaced = await schedule(any_relay, topic, "a", due_time=at(4_000_000_999))
    assert (replaced.result, replaced.replaced) == (timer_pb2.CHANGE_RESULT_REPLACED, True)


async def test_a_batch_creates_only_what_is_not_there(any_relay: Served, keyspace: Keyspace) -> None:
    topic = keyspace.topic()
    await schedule(any_relay, topic, "a", delay=MINUTE)
    request = service.ScheduleBatchRequest(
        timers=[spec(name, topic=topic, delay=MINUTE) for name in "ab"], mode=service.SCHEDULE_MODE_CREATE
    )
    results = (await any_relay.timers.ScheduleBatch(request)).results
    assert [each.scheduled.result for each in results] == [
        timer_pb2.CHANGE_RESULT_UNCHANGED,
        timer_pb2.CHANGE_RESULT_CREATED,
    ]


async def test_conditions(any_relay: Served, keyspace: Keyspace) -> None:
    """Reschedule and cancel, only if nobody delivers it, only if its due time is what I think."""
    topic = keyspace.topic()
    due = (await schedule(any_relay, topic, "a", due_time=at(4_000_000_000, 123_456_000))).timer.due_time
    wrong = timer_pb2.Condition(due_time=at(4_000_000_000, 123_457_000))
    answer = await schedule(any_relay, topic, "a", delay=MINUTE, condition=wrong)
    assert (answer.result, answer.timer.due_time) == (timer_pb2.CHANGE_RESULT_UNCHANGED, due)
    cancel = service.CancelRequest(topic=topic, timer_id="a", condition=wrong)
    kept = await any_relay.timers.Cancel(cancel)
    assert (kept.cancelled, kept.result) == (False, timer_pb2.CHANGE_RESULT_UNCHANGED)

    right = timer_pb2.Condition(due_time=due, only_if_pending=True)
    assert (await schedule(any_relay, topic, "a", condition=right)).result == timer_pb2.CHANGE_RESULT_REPLACED

    stream = await any_relay.stream().open(topic)
    held = await stream.delivery()
    pending = timer_pb2.Condition(only_if_pending=True)
    answer = await schedule(any_relay, topic, "a", delay=MINUTE, condition=pending)
    assert (answer.result, answer.timer.state, answer.delivery_under_way) == (
        timer_pb2.CHANGE_RESULT_IN_FLIGHT,
        timer_pb2.TIMER_STATE_LEASED,
        True,
    )
    refusal = service.CancelRequest(topic=topic, timer_id="a", condition=pending)
    assert (await any_relay.timers.Cancel(refusal)).result == timer_pb2.CHANGE_RESULT_IN_FLIGHT
    run = service.RunTimerRequest(topic=topic, timer_id="a")
    assert (await any_relay.timers.RunTimer(run)).result == timer_pb2.CHANGE_RESULT_IN_FLIGHT
    await stream.ack([held])
    await stream.send(drain=delivery.Drain())
    assert await stream.finish() == [], "the delivery held all the while"

    code, _, _ = await refused(schedule(any_relay, topic, "none", condition=pending))
    assert code is grpc.StatusCode.NOT_FOUND
    gone = await any_relay.timers.Cancel(
        service.CancelRequest(topic=topic, timer_id="none", condition=pending)
    )
    assert (gone.cancelled, gone.result) == (False, timer_pb2.CHANGE_RESULT_NOT_FOUND)


async def test_a_delivery_under_way(any_relay: Served, keyspace: Keyspace) -> None:
    """Each call tells of it, by itself and in batches; after a change that ended the lease, none is known."""
    timers, topic = any_relay.timers, keyspace.topic()
    stream = await any_relay.stream().open(topic)

    async def delivered() -> None:
        await schedule(any_relay, topic, "a", delay=Duration())
        await stream.delivery()

    await delivered()
    run = service.RunTimerRequest(topic=topic, timer_id="a")
    assert (await timers.RunTimer(run)).delivery_under_way
    moved = [await schedule(any_relay, topic, "a", delay=MINUTE) for _ in range(2)]
    assert [answer.delivery_under_way for answer in moved] == [True, False]
    await delivered()
    specs = [spec(name, topic=topic, delay=MINUTE) for name in "bac"]
    batch = await timers.ScheduleBatch(service.ScheduleBatchRequest(timers=specs))
    assert [result.scheduled.delivery_under_way for result in batch.results] == [False, True, False]
    await delivered()
    columns = service.ScheduleColumnsRequest(
        topic=topic, timer_ids="bac", payloads=[b""] * 3, delays_us=[60_000_000] * 3
    )
    assert [*(await timers.ScheduleColumns(columns)).deliveries_under_way] == [1]
    assert [*(await timers.ScheduleColumns(columns)).deliveries_under_way] == []
    await delivered()
    cancel = service.CancelRequest(topic=topic, timer_id="a")
    gone = [await timers.Cancel(cancel) for _ in range(2)]
    assert [answer.delivery_under_way for answer in gone] == [True, False]


async def test_run(any_relay: Served, keyspace: Keyspace) -> None:
    topic = keyspace.topic()
    await schedule(any_relay, topic, "a", delay=Duration(seconds=3_600))
    stream = await any_relay.stream().open(topic)
    answer = await any_relay.timers.RunTimer(service.RunTimerRequest(topic=topic, timer_id="a"))
    assert answer.result == timer_pb2.CHANGE_RESULT_RUN
    await stream.ack([await stream.delivery()])
    await stream.finish()
    code, _, _ = await refused(any_relay.timers.RunTimer(service.RunTimerRequest(topic=topic, timer_id="b")))
    assert code is grpc.StatusCode.NOT_FOUND


async def test_a_full_topic(relay: Served) -> None:
    relay.tune(max_waiting=1)
    await schedule(relay, "t", "a", delay=MINUTE)
    code, message, _ = await refused(schedule(relay, "t", "b", delay=MINUTE))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "max_waiting" in message
    batch = service.ScheduleBatchRequest(timers=[spec("a"), spec("b")])
    results = (await relay.timers.ScheduleBatch(batch)).results
    assert results[0].WhichOneof("result") == "scheduled"
    assert results[1].error.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("expire_time", {"due_time": at(4_000), "expire_time": at(4_000)}),
        ("expire_time", {"expire_time": at(4_000), "expire_after": MINUTE}),
        ("expire_time", {"expire_time": at(-1)}),
        ("expire_after", {"expire_after": Duration()}),
        ("expire_after", {"expire_after": Duration(seconds=-1)}),
        ("mode", {"mode": 9}),
        ("condition", {"mode": service.SCHEDULE_MODE_CREATE, "condition": {"only_if_pending": True}}),
        ("condition.due_time", {"condition": {"due_time": at(1, -1)}}),
    ],
)
async def test_refuses_what_contradicts_itself(relay: Served, field: str, fields: dict[str, Any]) -> None:
    assert await invalid_field(schedule(relay, "t", "a", **fields)) == field


async def test_reschedule_by_stream(any_relay: Served, keyspace: Keyspace) -> None:
    """A periodic timer: each period a new occurrence, with a payload of its own if wanted."""
    topic = keyspace.topic()
    await schedule(any_relay, topic, "a", payload=b"0", headers={"kind": "x"}, content_type="text/plain")
    stream = await any_relay.stream().open(topic)
    seen = []
    for period in range(5):
        one = await stream.delivery()
        seen.append(one)
        again = delivery.Reschedule(delay=Duration(nanos=20_000_000))
        if period != 2:
            again.payload = str(period + 1).encode()
        await stream.settle(settlement(one.token, delivery.OUTCOME_RESCHEDULE, reschedule=again))
    last = await stream.delivery()
    assert [each.payload for each in (*seen, last)] == [b"0", b"1", b"2", b"2", b"4", b"5"]
    assert len({each.occurrence_id for each in seen}) == 5
    assert {each.attempt for each in seen} == {1}
    assert dict(last.headers) == {"kind": "x"}
    assert last.content_type == "text/plain"
    await stream.ack([last])
    await stream.finish()


@pytest.mark.parametrize(
    "fields",
    [
        {"outcome": delivery.OUTCOME_RESCHEDULE},
        {"outcome": delivery.OUTCOME_RESCHEDULE, "reschedule": delivery.Reschedule()},
        {"outcome": delivery.OUTCOME_RESCHEDULE, "reschedule": delivery.Reschedule(due_time=at(-1))},
        {"outcome": delivery.OUTCOME_NACK, "reschedule": delivery.Reschedule(delay=MINUTE)},
        {"outcome": ACK, "reschedule": delivery.Reschedule(delay=MINUTE)},
        {
            "outcome": delivery.OUTCOME_RESCHEDULE,
            "reschedule": delivery.Reschedule(delay=MINUTE, payload=b"x" * ((1 << 20) + 1)),
        },
    ],
)
async def test_a_wrong_reschedule_is_a_problem_and_no_end(relay: Served, fields: dict[str, Any]) -> None:
    await schedule(relay, "t", "a")
    stream = await relay.stream().open()
    one = await stream.delivery()
    await stream.settle(settlement(one.token, **fields))
    assert await stream.problems() == [delivery.PROBLEM_REASON_INVALID]
    await stream.settle(settlement(one.token, ACK))
    await stream.send(drain=delivery.Drain())
    assert await stream.finish() == []


async def test_not_retryable(relay_on_valkey: Served, keyspace: Keyspace) -> None:
    topic = keyspace.topic()
    await schedule(relay_on_valkey, topic, "a")
    stream = await relay_on_valkey.stream().open(topic)
    one = await stream.delivery()
    await stream.settle(settlement(one.token, NACK, retryable=False, reason="no such customer"))
    await stream.send(drain=delivery.Drain())
    await stream.finish()
    page = await topics(relay_on_valkey).ListDeadLetters(pb.ListDeadLettersRequest(topic=topic))
    (letter,) = page.dead_letters
    assert (letter.reason, letter.last_error, letter.attempts) == ("failed", "no such customer", 1)


# ------------------------------------------------------------------------- TopicService


async def test_dead_letters_live_again(relay_on_valkey: Served, keyspace: Keyspace) -> None:
    """Listed without content, read with it, redriven as the same occurrence with attempts from 1."""
    topic = keyspace.topic()
    calls = topics(relay_on_valkey)
    letters = await kill(relay_on_valkey, topic, "a", "b", "c")
    assert [letter.timer_id for letter in letters] == ["a", "b", "c"]
    assert {(letter.reason, letter.last_error, letter.payload) for letter in letters} == {
        ("rejected", "no good", b"")
    }
    whole = await calls.GetDeadLetter(pb.GetDeadLetterRequest(topic=topic, dead_id=letters[1].dead_id))
    assert (whole.dead_letter.payload, dict(whole.dead_letter.headers)) == (b"of b", {"kind": "x"})

    await schedule(relay_on_valkey, topic, "c", delay=MINUTE)
    asked = [letter.dead_id for letter in letters] + ["1-1"]
    answer = await calls.RedriveDeadLetters(pb.RedriveDeadLettersRequest(topic=topic, dead_ids=asked))
    assert list(answer.results) == [
        pb.REDRIVE_RESULT_REDRIVEN,
        pb.REDRIVE_RESULT_REDRIVEN,
        pb.REDRIVE_RESULT_CONFLICT,
        pb.REDRIVE_RESULT_NOT_FOUND,
    ]
    stream = await relay_on_valkey.stream().open(topic)
    back = await stream.deliveries(2)
    assert {(each.timer_id, each.attempt, each.payload) for each in back} == {
        ("a", 1, b"of a"),
        ("b", 1, b"of b"),
    }
    occurrences = {letter.timer_id: letter.occurrence_id for letter in letters}
    assert all(each.occurrence_id == occurrences[each.timer_id] for each in back)
    await stream.ack(back)
    await stream.finish()

    purge = pb.PurgeDeadLettersRequest(topic=topic, dead_ids=asked)
    assert (await calls.PurgeDeadLetters(purge)).purged == 1
    assert (await calls.PurgeDeadLetters(purge)).purged == 0
    code, _, _ = await refused(calls.GetDeadLetter(pb.GetDeadLetterRequest(topic=topic, dead_id=asked[0])))
    assert code is grpc.StatusCode.NOT_FOUND


async def test_dead_letters_are_paged_and_filtered(relay_on_valkey: Served, keyspace: Keyspace) -> None:
    topic = keyspace.topic()
    calls = topics(relay_on_valkey)
    names = [f"n{number}" for number in range(7)]
    letters = await kill(relay_on_valkey, topic, *names)
    token, found = "", []
    for _ in range(4):
        request = pb.ListDeadLettersRequest(topic=topic, page_size=2, page_token=token)
        page = await calls.ListDeadLetters(request)
        found += [letter.timer_id for letter in page.dead_letters]
        token = page.next_page_token
    assert (found, token) == (names, "")

    async def matching(**wanted: Any) -> list[str]:
        filtered = pb.DeadLetterFilter(**wanted)
        page = await calls.ListDeadLetters(pb.ListDeadLettersRequest(topic=topic, filter=filtered))
        return [letter.timer_id for letter in page.dead_letters]

    assert await matching(timer_id="n3") == ["n3"]
    assert await matching(reason="attempts") == []
    middle = letters[3].death_time
    assert await matching(died_since=middle) + await matching(died_before=middle) != []
    assert set(await matching(died_since=middle)) | set(await matching(died_before=middle)) == set(names)
    assert not set(await matching(died_since=middle)) & set(await matching(died_before=middle))


async def test_without_dead_letters_the_dead_are_gone(relay_on_valkey: Served, keyspace: Keyspace) -> None:
    topic = keyspace.topic()
    relay_on_valkey.tune(topic, dead_letters=DeadLetterPolicy(keep=False))
    assert await kill(relay_on_valkey, topic, "a") == []


async def test_pause_and_resume(relay_on_valkey: Served, keyspace: Keyspace) -> None:
    """What is in flight goes on; nothing more is claimed until the end, or until somebody resumes."""
    topic = keyspace.topic()
    calls = topics(relay_on_valkey)
    await schedule(relay_on_valkey, topic, "a")
    stream = await relay_on_valkey.stream().open(topic)
    held = await stream.delivery()
    paused = (await calls.PauseTopic(pb.PauseTopicRequest(topic=topic))).topic
    assert (paused.paused, paused.HasField("paused_until")) == (True, False)
    await schedule(relay_on_valkey, topic, "b")
    await stream.ack([held])

    async def only_b_is_left() -> bool:
        stats = (await calls.GetTopic(pb.GetTopicRequest(topic=topic))).topic
        return (stats.timers, stats.due, stats.paused) == (1, 1, True)

    await until(only_b_is_left, "a is committed, b waits")
    assert stream.waiting == []
    resumed = (await calls.ResumeTopic(pb.ResumeTopicRequest(topic=topic))).topic
    assert not resumed.paused
    await stream.ack([await stream.delivery()])

    brief = pb.PauseTopicRequest(topic=topic, duration=Duration(nanos=300_000_000))
    assert (await calls.PauseTopic(brief)).topic.HasField("paused_until")
    await schedule(relay_on_valkey, topic, "c")
    await stream.ack([await stream.delivery()])  # by itself, when the pause is over
    await stream.finish()


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"dispatch": Dispatch.LIST}, "a topic with dispatch list has one"),
        ({"dispatch": Dispatch.STREAM}, "a topic with dispatch stream has one"),
    ],
    ids=str,
)
async def test_topics_that_keep_their_one_partition(
    relay_on_valkey: Served, keyspace: Keyspace, policy: dict[str, Any], words: str
) -> None:
    topic = keyspace.topic()
    relay_on_valkey.tune(topic, **policy)
    request = pb.ReshardTopicRequest(topic=topic, partitions=2)
    code, message, _ = await refused(topics(relay_on_valkey).ReshardTopic(request))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert words in message


async def test_topics_are_known(relay_on_valkey: Served, keyspace: Keyspace) -> None:
    """Those that were scheduled in or served, in the order of their names, page by page."""
    names = sorted(keyspace.topic(name) for name in ("a", "b", "c"))
    calls = topics(relay_on_valkey)
    for name in names:
        await schedule(relay_on_valkey, name, "x", delay=MINUTE)

    async def listed() -> list[pb.Topic]:
        token, found = "", []
        while True:
            page = await calls.ListTopics(pb.ListTopicsRequest(page_size=2, page_token=token))
            found += page.topics
            token = page.next_page_token
            if not token:
                return [each for each in found if each.topic in names]

    async def all_known() -> bool:
        return len(await listed()) == 3

    await until(all_known, "they are registered")
    assert [(each.topic, each.timers, each.due, each.dead) for each in await listed()] == [
        (name, 1, 0, 0) for name in names
    ]


async def test_a_broken_topic_hides_no_other(
    relay_on_valkey: Served, keyspace: Keyspace, valkey: RunningServer
) -> None:
    """Somebody else's key is told in its line of the listing; asked for by itself, it is an error."""
    good, bad = keyspace.topic("good"), keyspace.topic("bad")
    calls = topics(relay_on_valkey)
    await schedule(relay_on_valkey, good, "a", delay=MINUTE)
    await schedule(relay_on_valkey, bad, "a", delay=MINUTE)

    async def listed() -> dict[str, pb.Topic]:
        page = await calls.ListTopics(pb.ListTopicsRequest(page_size=1000))
        return {each.topic: each for each in page.topics}

    async def both() -> bool:
        return {good, bad} <= (await listed()).keys()

    await until(both, "both are registered")
    with valkey.client() as client:
        client.delete(f"timers_payloads:{bad}")
        client.set(f"timers_payloads:{bad}", "no hash")
        found = await listed()
        client.delete(f"timers_payloads:{bad}")
    assert (found[good].timers, found[good].error) == (1, "")
    assert "holds a string" in found[bad].error


@pytest.mark.parametrize(
    ("call", "request_", "field"),
    [
        ("GetTopic", pb.GetTopicRequest(topic=""), "topic"),
        ("PauseTopic", pb.PauseTopicRequest(topic="t", until=at(1_000)), "until"),
        ("PauseTopic", pb.PauseTopicRequest(topic="t", duration=Duration()), "duration"),
        ("ReshardTopic", pb.ReshardTopicRequest(topic="", partitions=2), "topic"),
        ("ReshardTopic", pb.ReshardTopicRequest(topic="t"), "partitions"),
        ("ReshardTopic", pb.ReshardTopicRequest(topic="t", partitions=-2), "partitions"),
        ("ReshardTopic", pb.ReshardTopicRequest(topic="t", partitions=2_048), "partitions"),
        ("ListTopics", pb.ListTopicsRequest(page_size=1_001), "page_size"),
        ("ListDeadLetters", pb.ListDeadLettersRequest(topic="t", page_size=501), "page_size"),
        ("ListDeadLetters", pb.ListDeadLettersRequest(topic="t", page_token="x"), "page_token"),
        ("GetDeadLetter", pb.GetDeadLetterRequest(topic="t", dead_id="x"), "dead_id"),
        ("RedriveDeadLetters", pb.RedriveDeadLettersRequest(topic="t"), "dead_ids"),
        ("RedriveDeadLetters", pb.RedriveDeadLettersRequest(topic="t", dead_ids=["1-1", "1-1"]), "dead_ids"),
        ("PurgeDeadLetters", pb.PurgeDeadLettersRequest(topic="t", dead_ids=["1-1"] * 501), "dead_ids"),
    ],
)
async def test_refuses(relay_on_valkey: Served, call: str, request_: Any, field: str) -> None:
    assert await invalid_field(getattr(topics(relay_on_valkey), call)(request_)) == field
