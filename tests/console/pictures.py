"""`make console-pictures`: the pages of the console, as docs/how-to/console.md and docs/tutorial/demo.md show
them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from examples.demo import __main__ as demo
from examples.demo.screen import Screen
from tests.console.browser import Watched, chromium, watched
from tests.console.scene import Scene, set_up
from tests.worlds.relay.stage import Stage, staged

DOCS = Path(__file__).resolve().parents[2] / "docs"
TARGET = DOCS / "how-to" / "console"

PICTURES = {
    "overview": "",
    "topic": "/topic?topic=orders&ahead=day",
    "timers": "/timers?topic=orders&prefix=order-40",
    "timer": "/timer?topic=orders&id=order-4711",
    "life": "/timer?topic=mails&id=mail-0",
    "dead-letters": "/dead?topic=mails",
    "recurrence": "/recurrence?topic=reports&id=daily",
    "people": "/people",
    "confirm": f"/dead/redrive?topic=mails&reason=rejected&shape={quote('SMTP …: mailbox … unavailable')}",
}


def take(scene: Scene, seen: Watched, name: str, path: str, mark: str = "") -> None:
    """Make one picture."""
    seen.open(path)
    seen.page.wait_for_timeout(12_000 if not path else 600)  # so that lines over time have some length
    seen.page.screenshot(path=TARGET / f"{name}{mark}.png", full_page=name != "timers")


@contextmanager
def busy(scene: Scene) -> Iterator[None]:
    """Timers come and go in a topic meanwhile."""
    over = threading.Event()

    def work() -> None:
        number = 0
        while not over.is_set():
            count = number % 7 + 3
            for _ in range(count):
                number += 1
                scene.put("signups", f"s-{number}", message="welcome", delay_sec=0.2)
            scene.settle_due("signups", count, "ack")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def of_the_demo(_: Screen, console: str) -> None:
    """The life of the timer whose application was killed."""

    def work() -> None:
        size = {"width": 1200, "height": 500}
        with chromium() as browser, watched(browser, console, viewport=size) as seen:
            seen.open("/timer?topic=demo&id=killed")
            seen.page.locator("#life", has_text="acked").wait_for()
            seen.page.screenshot(path=DOCS / "tutorial" / "demo-console.png", full_page=True)

    await asyncio.to_thread(work)


def main() -> None:
    asyncio.run(demo.main(of_the_demo))
    TARGET.mkdir(parents=True, exist_ok=True)
    with staged(Stage) as stage, chromium() as browser, busy(scene := set_up(stage)):
        with watched(browser, scene.console, viewport={"width": 1200, "height": 700}) as seen:
            for name, path in PICTURES.items():
                take(scene, seen, name, path)
        with watched(
            browser, scene.console, viewport={"width": 1200, "height": 700}, color_scheme="dark"
        ) as seen:
            for name in ("overview", "topic"):
                take(scene, seen, name, PICTURES[name], "-dark")
        with watched(browser, scene.console, viewport={"width": 360, "height": 740}) as seen:
            take(scene, seen, "overview", "", "-narrow")


if __name__ == "__main__":
    main()
