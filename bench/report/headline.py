"""The table for the front page: `python -m bench --headline` prints it from docs/performance/results.json."""

from __future__ import annotations

from bench.measures import drain, lateness, peers, schedule
from bench.report.results import Results
from bench.report.tables import number, spread

FIGURES = {
    "relay, one stream, default settings": ("drain", drain.STREAM, ""),
    "the server's own limit: the same scripts in a bare loop": ("drain", drain.CEILING, ""),
    "asynq, best tuning": ("peers", peers.best("asynq"), ""),
    "BullMQ, best tuning": ("peers", peers.best("bullmq"), ""),
    "faststream-redis-timers, best tuning": ("peers", peers.best("faststream-redis-timers"), ""),
    "arq, best tuning": ("peers", peers.best("arq"), ""),
    "rq, best tuning": ("peers", peers.best("rq"), ""),
    "relay, by push": ("drain", drain.PUSH, ""),
    "relay, by unary push": ("drain", drain.UNARY_PUSH, ""),
    "relay, scheduling by its client's `schedule_batch`": ("schedule", schedule.COLUMNS, ""),
}
LATENESS = {
    "relay, idle queue": lateness.IDLE,
    "relay, idle queue, timer set through another relay": lateness.ELSEWHERE,
    "relay, 5,000 timers/s": lateness.steady(5_000),
    **{
        f"{peer}, idle queue, defaults": lateness.idle_peer(peer) for peer in ("bullmq", "arq", "rq", "asynq")
    },
    "faststream-redis-timers, idle queue, defaults": lateness.idle_peer("faststream-redis-timers"),
}


def table(results: Results) -> str:
    """Two tables in Markdown, of what was measured, and the conditions in a line."""
    said = results.conditions
    lines = [
        f"{said.get('form', '')}; {said.get('machine', '')}; {said.get('server', '')}; {said.get('date', '')}"
    ]
    lines += ["", "| drained | timers a second | spread |", "|---|--:|--:|"]
    for words, key in FIGURES.items():
        figure = results.figure(*key)
        if figure is not None and figure.values:
            lines.append(f"| {words} | {number(figure.median)} | {spread(figure.values)} |")
    lines += ["", "| late, in ms | p50 | p99 |", "|---|--:|--:|"]
    for words, name in LATENESS.items():
        middle, tail = (results.median("lateness", name, stat) for stat in ("p50", "p99"))
        if middle is not None:
            lines.append(f"| {words} | {number(middle)} | {number(tail)} |")
    return "\n".join(lines)
