"""Who is let in: the policy on every page and action, forms of other pages, other hosts, headers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from relay.client import RelayClient
from relay.console.views import ACTIONS, PAGES
from relay.core.trust.verbs import AccessVerb
from tests.console.pages import Pages
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.trust.whole import Whole, whole
from tests.worlds.waiting import until

pytestmark = pytest.mark.anyio

READ, OPERATE, SCHEDULE, PAYLOAD = (
    AccessVerb.READ,
    AccessVerb.OPERATE,
    AccessVerb.SCHEDULE,
    AccessVerb.PAYLOAD,
)
NEEDS: dict[str, set[AccessVerb]] = {
    "/topic": {READ},
    "/timers": {READ},
    "/timer": {READ},
    "/timer/life": {READ},
    "/timer/payload": {READ, PAYLOAD},
    "/dead": {READ},
    "/dead/letter": {READ},
    "/recurrences": {READ},
    "/recurrence": {READ},
    "/recurrence/preview": {READ},
    "/topic/pause": {OPERATE},
    "/topic/resume": {OPERATE},
    "/timer/run": {OPERATE},
    "/timer/move": {READ, SCHEDULE, PAYLOAD},
    "/timer/cancel": {SCHEDULE},
    "/dead/redrive": {OPERATE},
    "/dead/purge": {OPERATE},
    "/recurrence/pause": {OPERATE},
    "/recurrence/resume": {OPERATE},
    "/recurrence/trigger": {OPERATE},
    "/recurrence/backfill": {OPERATE},
}
"""The verbs of each page and action that is about a topic: each of them is needed."""

LEAVE_OUT = {"", "/people"}
"""Pages that show to each what it may see."""


@pytest.fixture
async def daemon(
    valkey: RunningServer, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Whole]:
    keyspace.allow("timers_*")
    async with whole(valkey, keyspace(), monkeypatch) as daemon:
        daemon.allow(*AccessVerb)
        async with RelayClient(daemon.listening.grpc) as client:
            await client.schedule(
                daemon.topic, b"secret-payload", timer_id="one", delay=3600, headers={"h": "hidden"}
            )
            await client.recur("rec", topic=daemon.topic, cron="0 9 * * *")
        yield daemon


def pages_of(daemon: Whole) -> Pages:
    return Pages(daemon.listening.api)


async def test_each_page_and_action_asks_for_its_verbs(daemon: Whole) -> None:
    """All verbs but one of those that it needs deny it, and nothing is told or done then."""
    assert PAGES.keys() | ACTIONS.keys() == NEEDS.keys() | LEAVE_OUT
    pages = pages_of(daemon)
    said = {
        "topic": daemon.topic,
        "id": "one",
        "dead_id": "1-0",
        "reason": "*",
        "due": "2030-01-01",
        "was": "2030-01-01",
        "content": "0" * 40,
        "since": "2026-01-05",
        "until": "2026-01-12",
    }
    query = "&".join(f"{name}={text}" for name, text in said.items())
    token = (await pages.get("/sign-in")).token
    for path, needed in NEEDS.items():
        for verb in needed:
            daemon.allow(*(set(AccessVerb) - {verb}))
            answers = []
            if path in PAGES:
                answers.append(await pages.get(f"{path}?{query}"))
            if path in ACTIONS:
                answers.append(await pages.send(path, {**said, "relay_console": token}))
            for answer in answers:
                assert answer.status == 403, (path, verb, answer.words)
                assert "secret-payload" not in answer.text
        daemon.allow(*needed, READ)
        if path in PAGES:
            assert (await pages.get(f"{path}?{query}")).status in (200, 404, 422), path
    daemon.allow(*AccessVerb)
    async with RelayClient(daemon.listening.grpc) as client:
        assert await client.get(daemon.topic, "one") is not None
        assert not (await client.topics.get(daemon.topic)).paused


async def test_who_may_only_read_sees_no_content(daemon: Whole) -> None:
    """Neither payload nor headers of a timer, in whatever form; with `payload` both."""
    path = f"/timer?topic={daemon.topic}&id=one"
    daemon.allow(READ)
    seen = await pages_of(daemon).get(path)
    assert seen.status == 200
    assert "secret-payload" not in seen.text
    assert "hidden" not in seen.words
    assert "does not let you see payloads" in seen.words
    daemon.allow(READ, PAYLOAD)
    seen = await pages_of(daemon).get(path)
    assert "secret-payload" in seen.text
    assert "hidden" in seen.words


async def test_the_overview_and_the_stream_show_what_may_be_read(daemon: Whole) -> None:
    daemon.allow(READ)
    pages = pages_of(daemon)

    async def listed() -> bool:
        return daemon.topic in (await pages.get()).text

    await until(listed)
    daemon.allow(*AccessVerb, topic="other")
    assert not await listed()
    assert daemon.topic not in (await pages.get("/people")).text
    daemon.allow(READ)
    assert await listed()
    assert "PutRecurrence" in (await pages.get("/people")).text


async def test_a_form_of_another_page_does_nothing(daemon: Whole) -> None:
    """A form needs the token of this browser, and a browser that says it comes from this listener."""
    pages = pages_of(daemon)
    token = (await pages.get(f"/topic/pause?topic={daemon.topic}")).token
    form = {"topic": daemon.topic, "relay_console": token}

    async def paused() -> bool:
        async with RelayClient(daemon.listening.grpc) as client:
            return (await client.topics.get(daemon.topic)).paused

    other = Pages(daemon.listening.api, {"relay_console": "x" * 43})
    refused = [
        await pages.send("/topic/pause", {"topic": daemon.topic}),
        await pages.send("/topic/pause", {**form, "relay_console": "x" * 43}),
        await other.send("/topic/pause", form),
        await Pages(daemon.listening.api).send("/topic/pause", form),
        await pages.send("/topic/pause", form, sec_fetch_site="cross-site"),
        await pages.send("/topic/pause", form, sec_fetch_site="same-site"),
        await pages.send("/topic/pause", form, sec_fetch_site="none"),
        await pages.ask(
            "POST",
            "/console/topic/pause",
            f"topic={daemon.topic}&relay_console={token}".encode(),
            {"content-type": "application/x-www-form-urlencoded", "origin": "http://evil.example"},
        ),
        await pages.ask(
            "POST",
            "/console/topic/pause",
            f"topic={daemon.topic}&relay_console={token}".encode(),
            {"content-type": "application/x-www-form-urlencoded"},
        ),
    ]
    assert [answer.status for answer in refused] == [403] * len(refused)
    plain = await pages.ask("POST", "/console/topic/pause", b"{}", {"content-type": "text/plain"})
    assert plain.status == 415
    assert not await paused()
    assert (await pages.send("/topic/pause", form)).status == 200
    assert await paused()


async def test_every_answer_has_its_headers(daemon: Whole) -> None:
    """A strict policy of contents, without exceptions for what stands in pages; nothing may be guessed or
    framed."""
    pages = pages_of(daemon)
    for path in (
        "",
        "/nothing-here",
        "/sign-in",
        "/assets/console.js",
        "/assets/nothing",
        f"/topic?topic={daemon.topic}",
    ):
        headers = (await pages.get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
    cookie = (await Pages(daemon.listening.api).get()).headers["set-cookie"].lower()
    assert {"httponly", "samesite=strict", "path=/console"} <= {part.strip() for part in cookie.split(";")}
    assert (
        (await pages.get(f"/timer/payload?topic={daemon.topic}&id=one"))
        .headers["content-disposition"]
        .startswith("attachment")
    )
    assert "script>" not in (await pages.get()).text.replace("></script>", "")  # none stands in a page


async def test_an_asset_is_kept_by_its_own_version_alone(daemon: Whole) -> None:
    """A page of a newer relay behind the same address asks this one: its browser must not keep what comes for
    a year as if it were the newer file."""
    page = (await pages_of(daemon).get()).text
    for name in ("console.js", "console.css"):
        found = re.search(rf'"/console(/assets/{re.escape(name)}\?v=)([0-9a-f]+)"', page)
        assert found
        for version, kept in ((found[2], "immutable"), ("0123456789ab", "no-store"), ("", "no-store")):
            asset = await pages_of(daemon).get(f"{found[1]}{version}")
            assert (asset.status, kept in asset.headers["cache-control"]) == (200, True), version


async def test_a_host_of_others_is_refused(daemon: Whole) -> None:
    """A page whose own name was made to lead here still sends that name."""
    for path in ("/console", "/console/assets/console.js", "/console/live"):
        assert (await pages_of(daemon).ask("GET", path, None, {"host": "evil.example"})).status == 403


async def test_bad_input_is_answered_with_its_field(daemon: Whole) -> None:
    """Never by a failure of the relay's own."""
    pages, topic = pages_of(daemon), daemon.topic
    for path, said in (
        ("/topic?topic=%ff", "query: is not UTF-8"),
        ("/topic?topic=%7Bx%7D", "topic: "),
        ("/topic", "topic: is missing"),
        (f"/topic?topic={topic}&ahead=eternity", "ahead: is eternity"),
        (f"/timers?topic={topic}&since=soon", "since: is not an instant"),
        (f"/timers?topic={topic}&state=dead", "state: is dead"),
        (f"/timers?topic={topic}&cursor=%00x", "page_token: "),
        (f"/timer?topic={topic}&id={'x' * 2_000}", "id: has 2,000 characters"),
        (f"/dead?topic={topic}&cursor=x", "page_token: "),
        (f"/recurrence/preview?topic={topic}&rule=every+x", "rule.every: "),
        ("/people?before=x", "before: "),
        (f"/topic?{'&'.join(f'a{number}=b' for number in range(200))}", "query: "),
    ):
        answer = await pages.get(path)
        assert answer.status in (200, 422), (path, answer.words)
        assert said in answer.words, (path, answer.words)
    assert (await pages.ask("DELETE", "/console")).status == 405
    assert (await pages.ask("POST", "/console/people", b"", {"sec-fetch-site": "same-origin"})).status == 405


async def test_the_api_in_json_is_beside_it(daemon: Whole) -> None:
    """The console takes nothing but its own paths."""
    status, answer = await daemon.web("GET", f"/v1/topics/{daemon.topic}", None)
    assert (status, answer["topic"]["timers"]) == (200, "1")
    assert (await daemon.web("GET", "/consoles", None))[0] == 404
