"""The pages about the pipeline: their commands and their Python run, in the suite's Spark session."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.chaos import in_long
from tests.docs import pages
from tests.docs.console import end_all
from tests.pipeline.in_session import InSession
from tests.worlds.relay.stage import Stage

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.checkout]

OURS = pages.run_by(__file__)
PAGES = sorted({block.page for block in OURS})
LONG = {"docs/how-to/cold-store.md", "docs/how-to/pipeline-audit.md"}
"""Pages whose commands take minutes: sweeps and audits, and what is made of them."""


@pytest.mark.usefixtures("one_try")  # or timers that have ended are scheduled once more
@pytest.mark.parametrize("page", [*(page for page in PAGES if page not in LONG), *in_long(sorted(LONG))])
def test_the_page_works(
    page: str,
    spark: SparkSession,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    relay = stage.relay()
    monkeypatch.setenv("RELAY_REDIS__URL", stage.server.url)
    places = {
        "s3a://timers/": f"{tmp_path}/stores/",
        "s3a://campaigns/": f"{tmp_path}/campaigns/",
        "/backup/": f"{tmp_path}/backup/",
        "/backups/": f"{tmp_path}/backups/",
        "/tmp/": f"{tmp_path}/tmp/",
        "redis://127.0.0.1:48741/0": stage.server.url,
    }
    terminal = InSession(tmp_path, {"RELAY_TARGET": relay.target}, places, monkeypatch)
    files(spark, tmp_path)
    for topic in ("orders", "invoices"):
        asyncio.run(end_all(relay.target, topic, {f"{topic}-{n}": b"" for n in range(3)}))
    names: dict[str, object] = {"spark": spark}  # a reader of the page types all of it into one Python
    for block in [block for block in pages.blocks() if block.page == page]:
        if block.language == "python" and block in OURS:
            # Spark plans in a process whose environment is older than this test: the URL is an option.
            here = f'.option("redis_url", "{stage.server.url}")'
            code = re.sub(r'(format\("timers"\))', rf"\1{here}", terminal.real(block.text))
            code = re.sub(r'parquet\("(?=\w+[-\w]*"\))', f'parquet("{tmp_path}/', code)
            exec(compile(code, block.place, "exec", dont_inherit=True), names)
        else:
            terminal.replay([block], "tests/pipeline/test_docs.py")


def files(spark: SparkSession, folder: Path) -> None:
    """What the pages' commands read."""
    soon, later = (datetime.now(UTC) + timedelta(days=days) for days in (1 / 48, 40))
    (folder / "campaign.csv").write_text(f"customer,remind_at\nc-1,{later.isoformat()}\nc-2,soon\n")
    task = {
        "task_id": "t-1",
        "eta": later.isoformat(),
        "task": "mail.send",
        "args": [1],
        "kwargs": {"to": "a"},
    }
    (folder / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    job = {"id": "7", "timestamp": int(later.timestamp() * 1000), "delay": 5000, "data": '{"to": "a"}'}
    (folder / "jobs.jsonl").write_text(json.dumps(job) + "\n")
    rows = [(f"inv-{n}", due, b"x") for n, due in ((41, soon), (42, later), (43, later))]
    timers = spark.createDataFrame(rows, "timer_id string, due_time timestamp, payload binary")
    timers.write.parquet(str(folder / "timers.parquet"))
    timers.write.parquet(str(folder / "campaigns" / "spring"))
    timers.selectExpr("'invoices' as topic", "timer_id", "payload").write.parquet(
        str(folder / "source.parquet")
    )
