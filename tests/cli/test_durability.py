"""Each command that changes something hands `--durability` on."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest
from typer.testing import CliRunner

from relay.cli.commands import app
from tests.keyspace import Keyspace
from tests.rpc.test_every_change_waits import relay_at
from tests.servers import RunningServer

FROM = ("--from", "2020-01-01T00:00:00Z", "--to", "2020-01-01T01:00:00Z")
COMMANDS = (
    ("schedule", "t", "--in", "1h"),
    ("cancel", "t", "there"),
    ("run", "t", "there"),
    ("pause", "t"),
    ("resume", "t"),
    ("dead", "redrive", "t", "1-0"),
    ("dead", "purge", "t", "1-0", "--yes"),
    ("recur", "put", "t", "r", "--every", "1h"),
    ("recur", "pause", "t", "there"),
    ("recur", "resume", "t", "there"),
    ("recur", "trigger", "t", "there"),
    ("recur", "backfill", "t", "there", *FROM),
    ("recur", "delete", "t", "there"),
    ("recur", "apply", "-f", "file"),
    ("recur", "calendar", "put", "c", "2026-12-24"),
    ("recur", "calendar", "delete", "c"),
)


@pytest.mark.usefixtures("keyspace")
async def test_it_is_handed_on(valkey: RunningServer, keyspace: Keyspace, tmp_path: Path) -> None:
    """The server has no replica, so the relay refuses what asks for one."""
    topic, file = keyspace.topic(), tmp_path / "recurrences.yaml"
    keyspace.allow(f"*{topic}*")
    file.write_text(
        f"- {{topic: {topic}, recurrence_id: new, rule: {{every_sec: 3600}}}}\n", encoding="utf-8"
    )
    names = {"t": topic, "file": str(file)}
    async with relay_at(valkey.url) as relay:

        async def typed(*words: str, durability: str) -> str:
            there = [names.get(word, word) for word in words]
            options = ["--target", relay.address, "--durability", durability, "--timeout", "60"]
            invoke = partial(CliRunner().invoke, app, [*there, *options])
            return (await anyio.to_thread.run_sync(invoke)).stderr

        await typed("schedule", "t", "--in", "1h", "--id", "there", durability="stored")
        await typed("recur", "put", "t", "there", "--every", "1h", durability="stored")
        told = {words: await typed(*words, durability="replicas:1") for words in COMMANDS}
    assert [
        words for words, said in told.items() if "durability: replicas:1 needs 1 replica" not in said
    ] == []
