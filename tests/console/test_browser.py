"""The console in Debian's Chromium, on a real relay: every page and every action, in both themes, by
keyboard, in a narrow window. Nothing that pages do is an error, breaks their policy of contents, or asks
another host."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser

from relay.console.views import PAGES
from tests.console.browser import Watched, chromium, watched
from tests.console.scene import CROWD, HOSTILE_IDS, HOSTILE_PAYLOADS, TRACE, Scene, bill, set_up
from tests.worlds.relay.stage import Stage, staged
from tests.worlds.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("console")]

LETTERS = "?topic=mails&reason=rejected&shape=" + quote("SMTP …: mailbox … unavailable")

OPENED = {
    "": "",
    "/topic": "?topic=bills&ahead=day",
    "/topic/pause": "?topic=orders",
    "/topic/resume": "?topic=invoices",
    "/timers": "?topic=bills&header=tenant",
    "/timer": "?topic=orders&id=order-4711",
    "/timer/life": "?topic=mails&id=mail-0",
    "/timer/run": "?topic=orders&id=order-4711",
    "/timer/move": "?topic=orders&id=order-4711",
    "/timer/cancel": "?topic=orders&id=order-4711",
    "/dead": "?topic=mails",
    "/dead/letter": "?topic=mails&dead_id={dead_id}",
    "/dead/redrive": LETTERS,
    "/dead/purge": LETTERS,
    "/recurrences": "?topic=reports",
    "/recurrence": "?topic=reports&id=daily",
    "/recurrence/pause": "?topic=reports&id=daily",
    "/recurrence/resume": "?topic=reports&id=weekly",
    "/recurrence/trigger": "?topic=reports&id=daily",
    "/recurrence/backfill": "?topic=reports&id=daily",
    "/people": "",
    "/sign-in": "",
}
"""Each page, as it is opened here."""

PARTS = {"/timer/payload", "/recurrence/preview"}
"""What is no page by itself."""


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with staged(Stage) as stage:
        yield set_up(stage)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def seen(scene: Scene, browser: Browser) -> Iterator[Watched]:
    with watched(browser, scene.console) as seen:
        yield seen
        seen.check()


def paths(scene: Scene) -> list[str]:
    """Every page."""
    assert PAGES.keys() | {"/sign-in"} == OPENED.keys() | PARTS
    dead_id = scene.call("GET", "topics/mails/dead-letters")["dead_letters"][0]["dead_id"]
    return [path + query.format(dead_id=dead_id) for path, query in OPENED.items()]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_accessible_and_does_nothing_wrong(scene: Scene, browser: Browser, theme: str) -> None:
    """axe finds nothing, in either theme; and at 360 points nothing is wider than the window."""
    rules = () if theme == "light" else ("color-contrast",)  # nothing else is different
    with watched(browser, scene.console, color_scheme=theme) as seen:
        for path in paths(scene):
            seen.open(path)
            seen.axe(*rules)
            seen.page.set_viewport_size({"width": 360, "height": 740})
            seen.fits()
            seen.page.set_viewport_size({"width": 1280, "height": 800})
            seen.check()


def press(seen: Watched, role: str, name: str) -> None:
    """Go to a link or button by the tabulator alone, see that one sees where one is, and press Enter."""
    page = seen.page
    page.keyboard.press("Home")
    for _ in range(80):
        page.keyboard.press("Tab")
        found = page.evaluate(
            "[document.activeElement.innerText.trim(), getComputedStyle(document.activeElement).outlineStyle]"
        )
        if found[0] == name:
            assert found[1] != "none", f"{name} does not show that it has the focus"
            page.keyboard.press("Enter")
            return
    raise AssertionError(f"the keyboard does not lead to the {role} {name!r}")


def act(seen: Watched, link: str, button: str, done: str, **fields: str) -> str:
    """From a page to one that asks, and to one that says what was done; return what that one says."""
    page = seen.page
    page.get_by_role("link", name=link, exact=True).first.click()
    for label, text in fields.items():
        page.get_by_label(label.replace("_", " "), exact=True).fill(text)
    page.get_by_role("button", name=button, exact=True).click()
    page.get_by_role("heading", name=done).wait_for()
    return page.locator("main").inner_text()


def test_a_topic_is_paused_and_resumed_by_keyboard(scene: Scene, seen: Watched) -> None:
    seen.open("/topic?topic=orders")
    press(seen, "link", "Pause…")
    seen.page.get_by_role("heading", name="Pause the topic").wait_for()
    assert "401" in seen.page.locator(".facts").inner_text()  # what it will touch
    seen.page.get_by_label("Note").focus()
    seen.page.keyboard.type("maintenance")
    press(seen, "button", "Pause")
    seen.page.get_by_role("heading", name="The topic is paused").wait_for()
    assert scene.call("GET", "topics/orders")["topic"]["paused"]
    press(seen, "link", "Back")
    seen.page.get_by_role("link", name="Resume…").wait_for()
    press(seen, "link", "Resume…")
    seen.page.get_by_role("heading", name="Resume the topic").wait_for()
    press(seen, "button", "Resume")
    seen.page.get_by_role("heading", name="The topic goes on").wait_for()
    assert not scene.call("GET", "topics/orders")["topic"]["paused"]
    seen.open("/people?topic=orders")
    assert "maintenance" in seen.page.locator("main").inner_text()


def test_forms_work_behind_a_name_without_tls(scene: Scene, browser: Browser) -> None:
    """There browsers do not say `Sec-Fetch-Site`, and `Origin` has to do."""
    port = scene.relay.api.rpartition(":")[2]
    with watched(browser, f"http://relay.test:{port}/console") as seen:
        sent: dict[str, str] = {}
        seen.page.on(
            "request", lambda each: sent.update(each.all_headers()) if each.method == "POST" else None
        )
        seen.open("/topic?topic=signs")
        act(seen, "Pause…", "Pause", "The topic is paused")
        assert (sent["origin"], sent.get("sec-fetch-site")) == (f"http://relay.test:{port}", None)


def test_partitions_stand_side_by_side(seen: Watched) -> None:
    """With the timers that each has, which are those of the topic together; and settings with where they come
    from."""
    seen.open("/topic?topic=orders")
    parts = seen.page.locator("section", has=seen.page.get_by_role("heading", name="Partitions"))
    held = [int(cell) for cell in parts.locator("tbody td.n:nth-child(2)").all_inner_texts()]
    assert (len(held), sum(held)) == (4, int(seen.page.locator("[data-field=timers]").inner_text()))
    seen.page.get_by_text("As this relay has them").click()
    row = seen.page.locator(".settings tr", has_text="lease_ttl")
    assert row.inner_text().split() == ["lease_ttl", "60.0", "topics.orders"]


def test_a_timer_is_looked_at_moved_run_and_cancelled(scene: Scene, seen: Watched) -> None:
    scene.put(
        "orders",
        "mine",
        message={"a": [1]},
        delay_sec=7200,
        headers={"traceparent": f"00-{TRACE}-{'1' * 16}-01"},
    )
    seen.open("/timers?topic=orders")
    seen.page.get_by_label("Timer id").fill("mine")
    seen.page.get_by_role("button", name="Open").click()
    link = seen.page.get_by_role("link", name="Open the trace")
    assert link.get_attribute("href") == f"https://traces.example.com/{TRACE}"
    act(
        seen, "Move or edit…", "Move", "The timer is moved", New_due_time="2040-01-02T03:04:05Z", Note="later"
    )
    moved = scene.call("GET", "topics/orders/timers/mine")["timer"]
    assert (moved["due_time"], moved["message"]) == ("2040-01-02T03:04:05Z", {"a": [1]})
    assert moved["headers"]["traceparent"].startswith(f"00-{TRACE}")
    seen.page.get_by_role("link", name="Back").click()
    assert "later" in seen.page.locator("main").inner_text()  # in its life
    new = '{\n  "a": [2],\n  "ö": "</textarea>"\n}'
    act(seen, "Move or edit…", "Move", "The timer is moved", Payload=new)
    assert scene.call("GET", "topics/orders/timers/mine")["timer"]["message"] == {
        "a": [2],
        "ö": "</textarea>",
    }
    seen.page.get_by_role("link", name="Back").click()
    act(seen, "Run now…", "Run now", "The timer runs")
    assert scene.call("GET", "topics/orders/timers/mine")["timer"]["next_claim_time"] < "2040"
    seen.page.get_by_role("link", name="Back").click()
    act(seen, "Cancel…", "Cancel the timer", "The timer is cancelled")
    seen.open("/timer?topic=orders&id=mine")
    assert "Redis holds no such timer" in seen.page.locator("main").inner_text()
    assert [error for error in seen.errors if "404" not in error] == []
    seen.errors.clear()  # Chromium says so itself of a page that is not there


def test_a_move_from_a_page_that_is_old_changes_nothing(scene: Scene, seen: Watched) -> None:
    """Somebody has moved the timer since the page was made: the newest intent stands."""
    soon, later = "2039-01-01T00:00:00Z", "2039-01-01T01:00:00Z"
    for due in (later, soon):  # moved, or the same instant with other contents
        scene.put("orders", "raced", message="old", due_time=soon)
        seen.open("/timer/move?topic=orders&id=raced")
        scene.put("orders", "raced", message="new", due_time=due)
        seen.page.get_by_label("New due time").fill("2040-01-02T03:04:05Z")
        seen.page.get_by_role("button", name="Move", exact=True).click()
        seen.page.get_by_role("heading", name="Nothing was moved").wait_for()
        left = scene.call("GET", "topics/orders/timers/raced")["timer"]
        assert (left["message"], left["due_time"]) == ("new", due)


def test_dead_letters_are_redriven_and_purged_by_group(scene: Scene, seen: Watched) -> None:
    for number in range(4):
        scene.put("letters", f"l-{number}", message="x", delay_sec=0)
    scene.settle_due("letters", 3, "reject", "no such user {}")
    scene.settle_due("letters", 1, "reject", "out of paper")
    seen.open("/dead?topic=letters")
    group = seen.page.locator(".group", has_text="no such user …")
    assert "3" in group.locator(".count").inner_text()
    group.get_by_role("link", name="Redrive this group").click()
    assert "3" in seen.page.locator(".facts").inner_text()
    seen.page.get_by_role("button", name="Redrive").click()
    seen.page.get_by_role("heading", name="Redrive: done").wait_for()
    assert "Redriven" in seen.page.locator(".facts").inner_text()
    topic = scene.call("GET", "topics/letters")["topic"]
    assert (topic["timers"], topic["dead"]) == ("3", "1")
    seen.page.get_by_role("link", name="Back").click()
    seen.page.locator(".group .data a").first.click()
    assert "out of paper" in seen.page.locator("main").inner_text()
    act(seen, "Purge…", "Purge", "Purge: done")
    assert scene.call("GET", "topics/letters")["topic"]["dead"] == "0"
    seen.open("/timer?topic=letters&id=l-3")  # its life comes behind the page
    seen.page.locator("#life .bad", has_text="out of paper").wait_for()
    assert "scheduled" in seen.page.locator("#life").inner_text()
    seen.errors.clear()  # Chromium says so itself of a timer that is not there


def test_an_action_touches_what_its_page_has_counted(scene: Scene, seen: Watched) -> None:
    """What dies while somebody reads the page stays; and an error whose lines end as Windows' do has a group
    that its form finds."""
    for number, error in enumerate(("no route\r\nto host", "no route\r\nto host")):
        scene.put("windows", f"w-{number}", message="x", delay_sec=0)
        scene.settle_due("windows", 1, "reject", error)
        if number == 0:
            seen.open("/dead?topic=windows")
            seen.page.get_by_role("link", name="Purge this group").click()
            assert "Dead letters\n1" in seen.page.locator(".facts").inner_text()
    seen.page.get_by_role("button", name="Purge").click()
    seen.page.get_by_role("heading", name="Purge: done").wait_for()
    assert "Purged\n1" in seen.page.locator(".facts").inner_text()
    assert scene.call("GET", "topics/windows")["topic"]["dead"] == "1"


def test_recurrences_are_previewed_paused_resumed_and_triggered(scene: Scene, seen: Watched) -> None:
    mine = {"rule": {"cron": "0 9 * * 1-5"}, "message": "x", "overlap": "allow"}
    scene.call("PUT", "topics/reports/recurrences/mine", mine)
    seen.open("/recurrences?topic=reports")
    rule = seen.page.get_by_role("textbox", name="Rule")
    rule.press_sequentially("0 9 * * 1-5")
    seen.page.locator("#instants time").nth(11).wait_for()
    rule.fill("61 * * * *")
    seen.page.locator("#instants .bad").wait_for()
    seen.page.get_by_role("link", name="mine").click()
    act(seen, "Pause…", "Pause", "The recurrence is paused", Note="holiday")
    seen.page.get_by_role("link", name="Back").click()
    assert "holiday" in seen.page.locator("main").inner_text()
    act(seen, "Resume…", "Resume", "The recurrence goes on")
    seen.page.get_by_role("link", name="Back").click()
    assert "mine@" in act(seen, "Trigger…", "Trigger", "The recurrence was triggered")
    seen.page.get_by_role("link", name="Back").click()
    assert seen.page.locator(".instant-line rect.next").count() == 12
    assert seen.page.locator(".calendar td").count() == 42
    assert seen.page.locator(".calendar .today").count() == 1
    assert seen.page.locator(".calendar .busy").count() >= 20  # on weekdays of the weeks that come
    week = {"From": "2026-01-05T00:00:00Z", "Before": "2026-01-12T00:00:00Z"}  # from Monday to Sunday
    said = act(seen, "Backfill…", "Backfill", "Backfill: done", **week)
    assert "Occurrences\n5" in said


def test_numbers_stay_fresh_and_themes_and_times_are_kept(scene: Scene, seen: Watched) -> None:
    """What another does shows without a click; the theme that is chosen holds on the next page, too."""
    seen.open("/topic?topic=invoices")
    number = seen.page.locator("[data-field=timers]")
    before = int(number.inner_text())
    scene.put("invoices", "one-more", message="x", delay_sec=86_400)
    eventually(lambda: int(number.inner_text()) == before + 1, "the page shows it", 30.0)
    moment = seen.page.locator("time").first
    seen.page.get_by_role("button", name="UTC").click()
    assert moment.inner_text() == moment.get_attribute("datetime")
    seen.page.get_by_role("button", name="Relative").click()
    assert moment.inner_text().startswith("in ")
    seen.page.get_by_role("button", name="Switch to the dark theme").click()
    seen.open()
    concern = seen.page.locator("#concerns li", has_text="invoices")
    scene.call("POST", "topics/invoices:resume", {})
    concern.wait_for(state="detached")
    scene.call("POST", "topics/invoices:pause", {})
    concern.wait_for()
    assert concern.locator("a").get_attribute("href") == "/console/topic?topic=invoices"
    assert seen.page.locator("html").get_attribute("data-theme") == "dark"
    assert seen.page.evaluate("getComputedStyle(document.body).color") == "rgb(230, 233, 236)"


def test_the_last_hour_is_drawn_and_goes_on(seen: Watched) -> None:
    """Four plots and a table; what the relay has sampled since comes by the stream, and what came before does
    not come again."""
    later = [4e9, 401, 3, 2, 1.5, 0.5, None, 0.25]
    said = json.dumps({"at": 0, "topics": {}, "trend": later})
    events = f"data: {said}\n\n" * 2
    seen.page.route(
        "**/console/live*", lambda route: route.fulfill(body=events, content_type="text/event-stream")
    )

    def is_drawn() -> bool:
        seen.open("/topic?topic=orders")
        return seen.page.locator("[data-trend]").count() == 1

    eventually(is_drawn, "the relay has sampled the topic, as it does each 15 s", 120.0)
    seen.page.locator("[data-trend*='4000000000']").wait_for()
    assert seen.page.locator(".trends canvas").count() == 4
    shown = json.loads(seen.page.locator("[data-trend]").get_attribute("data-trend") or "")
    assert [column[-1] for column in shown] == later
    assert [column.count(4e9) for column in shown] == [1, 0, 0, 0, 0, 0, 0, 0]
    section = seen.page.locator("section", has=seen.page.get_by_role("heading", name="The last hour"))
    section.get_by_text("The numbers").click()
    assert section.locator("tbody tr").first.locator("td").count() == 8


def test_tabs_that_nobody_sees_hold_no_connection(seen: Watched) -> None:
    """Browsers have six for a host; and a tab that is seen again is live again. Chromium without a window has
    every tab be seen, so this says that they are not."""
    say = """(state) => {
      Object.defineProperty(document, "visibilityState", { configurable: true, get: () => state });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page = seen.page
    for _ in range(7):
        page = seen.page.context.new_page()
        page.goto(seen.console, timeout=60_000)
        page.locator("#live-text:text-is('live')").wait_for()
        page.evaluate(say, "hidden")
    page.locator("#live").evaluate("each => { each.hidden = true; }")
    page.evaluate(say, "visible")
    page.locator("#live-text:text-is('live')").wait_for()


def test_a_search_goes_on_while_one_types(scene: Scene, seen: Watched) -> None:
    seen.open("/timers?topic=orders")
    seen.page.get_by_label("Id begins with").press_sequentially("order-4399")
    eventually(lambda: seen.page.locator("#results tbody tr").count() == 1, "one is left", 30.0)
    assert "order-4399" in seen.page.locator("#results").inner_text()


def held(seen: Watched) -> int:
    """How many timers a topic's page says that there are."""
    return int(re.sub(r"\D", "", seen.page.locator("[data-field=timers]").inner_text()))


def test_a_million_timers_are_searched_a_part_at_a_time(seen: Watched) -> None:
    """A search says how many it has looked at, and goes on from there; a time leads to any of them."""
    page, last = seen.page, bill(CROWD - 1)
    seen.open("/topic?topic=bills")
    assert held(seen) == CROWD
    seen.open(f"/timers?topic=bills&prefix={last}")
    rows, results = page.locator("#results tbody tr"), page.locator("#results")
    assert "looked at so far" in results.inner_text()
    results.get_by_role("link", name="Go on").click()
    assert "looked at so far" in results.inner_text()
    assert "cursor=" in page.url
    seen.check()
    seen.open("/timers?topic=bills")
    page.get_by_label("Due from").fill("2040-01-01T00:16:39.999Z")
    eventually(lambda: rows.count() == 1, "the last one is left", 60.0)
    page.get_by_role("link", name=last).click()
    assert "bill" in page.locator("main").inner_text()
    act(seen, "Cancel…", "Cancel the timer", "The timer is cancelled")
    seen.open("/topic?topic=bills")
    eventually(lambda: held(seen) == CROWD - 1, "it is gone", 60.0)


def test_a_search_says_what_it_can_not_read(seen: Watched) -> None:
    """The results of the search before do not stand beside it as if they were its own."""
    seen.open("/timers?topic=orders")
    seen.page.get_by_label("Due from").fill("soon")
    seen.page.locator("#results", has_text="since: is not an instant").wait_for()
    assert seen.page.locator("#results tbody").count() == 0
    seen.page.get_by_label("Due from").fill("2026-11-24T08:00:00Z")
    seen.page.locator("#results tbody tr").first.wait_for()
    assert [error for error in seen.errors if "422" not in error] == []
    seen.errors.clear()  # Chromium says so itself of an answer that is an error


def test_what_others_wrote_does_nothing(scene: Scene, seen: Watched) -> None:
    """Names and payloads with markup, scripts, control characters, other directions, and of a megabyte are
    shown, and their own pages are found."""
    for number, name in enumerate(HOSTILE_IDS):
        scene.put("hostile", name, message=f"number {number}", delay_sec=3600 + number)
    for name, payload in HOSTILE_PAYLOADS.items():
        scene.put_bytes("hostile", name, payload, content_type="application/json", delay_sec=7200)
    seen.open("/timers?topic=hostile")
    assert seen.page.locator("#results tbody tr").count() == len(HOSTILE_IDS) + len(HOSTILE_PAYLOADS)
    for number in range(len(HOSTILE_IDS)):
        seen.open("/timers?topic=hostile")
        seen.page.locator("#results tbody th a").nth(number).click()
        assert f"number {number}" in seen.page.locator("main").inner_text()
        seen.fits()
        seen.check()
    for name in HOSTILE_PAYLOADS:
        seen.open(f"/timer?topic=hostile&id={name}")
        assert seen.page.locator("section", has_text="Payload").count() >= 1
        seen.fits()
        seen.check()
    wrong = quote("<script>window.owned=1</script>")
    seen.open(f"/timers?topic=hostile&prefix={wrong}&since=")
    assert seen.page.get_by_label("Id begins with").input_value() == "<script>window.owned=1</script>"
    seen.check()
