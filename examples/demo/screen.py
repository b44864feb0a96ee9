"""The demo's table: one row for each timer, redrawn as things happen."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table


@dataclass
class Row:
    """What is known about one timer. `steps` is its story so far."""

    timer_id: str
    plan: str
    steps: list[str] = field(default_factory=lambda: ["scheduled"])
    deliveries: list[dict[str, Any]] = field(default_factory=list)
    handled: int = 0
    gone: bool = False

    @property
    def attempts(self) -> list[int]:
        """The attempt number of each delivery."""
        return [delivery["attempt"] for delivery in self.deliveries]


class Screen:
    """Redraws a table on a terminal; elsewhere it prints one line for each event."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def add(self, timer_id: str, plan: str) -> None:
        """Show that a timer was scheduled."""
        self.rows[timer_id] = Row(timer_id, plan)
        self._show(timer_id, "scheduled")

    def step(self, timer_id: str, what: str) -> None:
        """Show that something happened to a timer."""
        self.rows[timer_id].steps.append(what)
        self._show(timer_id, what)

    def event(self, event: dict[str, Any]) -> None:
        """Show an event of the application."""
        row = self.rows[event["timer_id"]]
        if event["event"] == "delivered":
            row.deliveries.append(event)
            number = f" (attempt {event['attempt']})" if event["attempt"] > 1 else ""
            self.step(row.timer_id, f"delivered{number}, {event['lateness_ms']:.1f} ms late")
        else:
            row.handled += 1

    def say(self, text: str) -> None:
        """Print a line of its own."""
        (self._live.console if self._live is not None else self._console).print(text, highlight=False)

    def _show(self, timer_id: str, what: str) -> None:
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
        else:
            self.say(f"{time.monotonic() - self._began:5.1f} s  {timer_id:<10} {what}")

    def _table(self) -> Table:
        table = Table(title="Relay: timers on Redis, delivered over gRPC", title_justify="left")
        for heading in ("timer", "plan", "what happened"):
            table.add_column(heading)
        for row in self.rows.values():
            done = "[green]" if row.gone else ""
            table.add_row(f"{done}{row.timer_id}", row.plan, f"{done}{' → '.join(row.steps)}")
        return table
