"""The console of a relay as a process: who signs in, streams that are open as it stops, and where it is not
served."""

from __future__ import annotations

import http.client
import json
import re
from pathlib import Path

import pytest

from relay.trust import tokens
from tests.console.pages import Pages
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import PATIENCE, until

pytestmark = pytest.mark.anyio

POLICY = "rules: [{principals: ['token:alice'], topics: ['*'], verbs: [read, operate]}]\n"


async def test_a_token_signs_in_until_it_is_taken_back(stage: Stage, tmp_path: Path) -> None:
    """Without it one is anonymous, and the policy says what that may; a wrong one is told so, and not kept.
    What one does has one's name."""
    known, policy, token = tmp_path / "tokens", tmp_path / "policy.yaml", tokens.new()
    known.write_text(tokens.line("alice", token) + "\n")
    policy.write_text(POLICY)
    relay = stage.relay(
        settings={"RELAY_AUTHENTICATION__TOKENS_FILE": str(known), "RELAY_POLICY_FILE": str(policy)}
    )
    pages = Pages(relay.api)
    denied = await pages.get("/topic?topic=t")
    assert (denied.status, "Sign in" in denied.words) == (403, True)
    form = {"relay_console": (await pages.get("/sign-in")).token}
    wrong = await pages.send("/sign-in", {**form, "bearer": tokens.new()})
    assert (wrong.status, "not one that this relay takes" in wrong.words) == (401, True)
    large = await pages.send("/sign-in", {**form, "bearer": "x" * 4_000})  # no browser would keep it
    assert (large.status, "has 4000 characters" in large.words) == (422, True)
    assert "relay_bearer" not in pages.cookies
    assert (await pages.send("/sign-in", {**form, "bearer": token})).status == 303
    seen = await pages.get("/topic?topic=t")
    assert (seen.status, "token:alice Sign out" in seen.words) == (200, True)
    paused = await pages.act("/topic/pause", topic="t", note="mine")
    assert paused.status == 200, paused.words
    assert "token:alice PauseTopic" in (await pages.get("/people?topic=t")).words
    assert token not in relay.output()
    elsewhere = Pages(relay.api, {"relay_bearer": tokens.new()})
    assert (await elsewhere.get()).status == 401
    assert (await pages.send("/sign-in", {**form, "bearer": ""})).status == 303  # signed out
    left = await pages.get("/topic?topic=t")
    assert (left.status, "Sign out" in left.words, "Sign in" in left.words) == (403, False, True)


@pytest.mark.slow
async def test_the_stream_tells_what_may_be_read_and_ends_with_it(stage: Stage, tmp_path: Path) -> None:
    """A page that is open keeps no relay from stopping: it ends in order, and logs no error."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "rules: [{principals: [anonymous], topics: [mine], verbs: [schedule, read]}]\n"
        "bounds: [{principals: [anonymous], max_calls: 1, max_streams: 1}]\n"
    )
    relay = stage.relay(settings={"RELAY_POLICY_FILE": str(policy), "RELAY_TOPICS__theirs__JOURNAL": "true"})
    producer = stage.producer(relay)
    producer.schedule("mine", "one", delay=3600)
    stage.client.sadd("timers_topics", "theirs")
    connection = http.client.HTTPConnection(relay.api, timeout=PATIENCE)
    connection.request("GET", "/console/live")
    answer = connection.getresponse()
    assert answer.headers["content-type"].startswith("text/event-stream")

    def event() -> dict[str, dict[str, object]]:
        while not (line := answer.readline()).startswith(b"data: "):
            assert line, "the stream has ended"
        said: dict[str, dict[str, object]] = json.loads(line[6:])
        return said

    topics = event()["topics"]
    while not topics:  # what was read before the timer came serves all who ask within a second
        topics = event()["topics"]
    assert list(topics) == ["mine"]
    event()  # it goes on
    pages = Pages(relay.api)
    assert (await pages.get()).status == 200  # a page that is open is no call under way
    assert (await pages.get("/live")).status == 429  # but a stream, as others are
    assert relay.terminate() == 0
    assert answer.read().count(b"data:") <= 2
    connection.close()
    assert [line for line in relay.lines() if line["level"] in ("error", "critical")] == []


async def test_where_it_is_switched_off_there_is_the_api_alone(stage: Stage) -> None:
    relay = stage.relay(settings={"RELAY_CONSOLE__ENABLED": "false"})
    pages = Pages(relay.api)
    assert (await pages.get()).status == 404
    assert (await pages.ask("GET", "/v1/topics")).status == 200
    said = next(line for line in relay.lines() if line["message"] == "relay is serving")
    assert said["console"] == "off"


async def test_a_relay_with_a_keyring_offers_no_move(stage: Stage, tmp_path: Path) -> None:
    """It could write in the clear what was sealed. Who may do all else still may."""
    ring = tmp_path / "keyring.yaml"
    ring.write_text(json.dumps({"write": "k1", "keys": {"k1": {"base64": "A" * 43 + "="}}}))
    relay = stage.relay(settings={"RELAY_SEALING__KEYRING": str(ring)})
    stage.producer(relay).schedule("t", "one", delay=3600)
    pages = Pages(relay.api)
    words = (await pages.get("/timer?topic=t&id=one")).words
    assert ("Move or edit…" in words, "Cancel…" in words) == (False, True)
    assert (await pages.get("/timer/move?topic=t&id=one")).status == 422


@pytest.mark.slow
async def test_relays_see_each_other_until_they_stop(stage: Stage) -> None:
    """With their versions, and how many deliveries they hold; one that has stopped is gone at once."""
    first = stage.relay("relay-1", {"RELAY_NAME": "orders-a"})
    second = stage.relay("relay-2", {"RELAY_NAME": "orders-b"})
    pages = Pages(first.api)

    async def listed(*names: str) -> bool:
        shown = (await pages.get()).text.partition("Relays that live")[2].partition("</table>")[0]
        return re.findall(r"<bdi class='name'>([^<]+)</bdi>", shown) == list(names)

    async def is_this_one() -> bool:
        return "orders-a this one 0.1.0" in (await pages.get()).words

    await until(lambda: listed("orders-a", "orders-b"))
    await until(is_this_one)  # a page shows none while Redis needs more than a second for them
    assert second.terminate() == 0
    await until(lambda: listed("orders-a"))


@pytest.mark.slow
async def test_a_page_shows_some_of_many_partitions(stage: Stage) -> None:
    """64 of them, if asked; and the forecast if asked, too."""
    relay = stage.relay(settings={"RELAY_TOPICS__wide__PARTITIONS": "256"})
    pages = Pages(relay.api)
    timer = json.dumps({"message": "x", "delay_sec": 1800}).encode()
    said = {"content-type": "application/json", "relay-timeout": "60"}
    put = await pages.ask("PUT", "/v1/topics/wide/timers/one", timer, said)
    assert put.status == 201, put.text

    async def page(query: str = "") -> tuple[str, int]:
        """The words of a page, and the partitions that it shows."""
        reply = await pages.get(f"/topic?topic=wide{query}")
        assert reply.status == 200, reply.words
        return reply.words, reply.text.count("<meter")

    async def is_looked_at() -> bool:
        words, shown = await page()
        return shown == 0 and "There are 256. Show them side by side" in words

    await until(is_looked_at)
    words, shown = await page("&parts=64")
    assert (shown, "64 to 127 of 256. Before Next" in words) == (64, True)
    words, shown = await page("&parts=250")
    assert (shown, "250 to 255 of 256. Before" in words) == (6, True)
    assert "choose how far to look" in words
    assert "Within this time 1" in (await page("&ahead=hour"))[0]
    assert (await pages.get("/topic?topic=wide&parts=256")).status == 422
