"""Debian's Chromium, and pages that note all that went wrong in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.missing import need

AXE = Path(__file__).parent / "axe" / "axe-4.14.1.min.js"

OPTIONS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"),
    "--host-resolver-rules=MAP relay.test 127.0.0.1",
]

LISTEN = """
document.addEventListener('securitypolicyviolation', (event) => {
  console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`);
});
"""


@dataclass
class Watched:
    """A page of the console. `errors` are what its console said, what it threw, and requests to other
    hosts."""

    page: Page
    console: str
    errors: list[str] = field(default_factory=list)

    def open(self, path: str = "") -> None:
        """Open a page of the console."""
        self.page.goto(f"{self.console}{path}", wait_until="load")

    def check(self) -> None:
        """Nothing went wrong, and nothing that others wrote has run."""
        assert not self.errors, self.errors
        assert self.page.evaluate("window.owned") is None

    def axe(self, *rules: str) -> None:
        """axe finds nothing against WCAG 2.2 AA, nor against what its authors call best; or against these
        rules alone."""
        # By the debugger's way in, which the page's policy does not concern.
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
        found = self.page.evaluate("(options) => axe.run(document, options)", options)
        said = [
            (
                each["id"],
                [node["html"][:200] + " | " + node["failureSummary"][:300] for node in each["nodes"]],
            )
            for each in found["violations"]
        ]
        assert not said, said

    def fits(self) -> None:
        """Nothing makes the page itself wider than the window."""
        wide, window = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= window, (self.page.url, wide, window)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser."""
    program = need("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, headless=True, args=OPTIONS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def watched(browser: Browser, console: str, **options: Any) -> Iterator[Watched]:
    """A page in a context of its own, by default of 1,280 × 800 points in the light theme."""
    said = {
        "viewport": {"width": 1280, "height": 800},
        "color_scheme": "light",
        "timezone_id": "Europe/Berlin",
    }
    context = browser.new_context(locale="en-GB", **{**said, **options})
    context.add_init_script(LISTEN)
    page = context.new_page()
    page.set_default_timeout(120_000)
    seen = Watched(page, console)
    page.on(
        "console", lambda line: seen.errors.append(line.text) if line.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on(
        "request",
        lambda request: None if request.url.startswith(console) else seen.errors.append(f"to {request.url}"),
    )
    try:
        yield seen
    finally:
        context.close()
