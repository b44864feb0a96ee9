"""`make console-pictures`: the pages of the console, as docs/how-to/console.md shows them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from tests.console.browser import Watched, chromium, watched
from tests.console.scene import Scene, set_up
from tests.worlds.relay.stage import Stage, staged

TARGET = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "console"

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
    seen.page.wait_for_timeout(3_500 if not path else 600)  # so that lines over time have some length
    seen.page.screenshot(path=TARGET / f"{name}{mark}.png", full_page=name != "timers")


def main() -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    with staged(Stage) as stage, chromium() as browser:
        scene = set_up(stage)
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
