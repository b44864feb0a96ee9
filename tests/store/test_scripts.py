"""How scripts are run, and what each says of itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relay.core.timers import NewTimer
from relay.store.keys import KeyNames
from relay.store.server import scripts as module
from relay.store.server.manifest import manifest, verbs
from relay.store.server.scripts import Script, Scripts, source
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer


VERBS = tuple(verb for verb in verbs() if not verb.startswith("bulk/"))

SUBCOMMAND = re.compile(
    r"'(XGROUP|XINFO|XREADGROUP)', ('\w+', (?:group_name, consumer, 'COUNT', most, 'STREAMS', )?)"
)
"""What stands before the key in these commands."""


async def test_reloaded_after_a_flush(redis_server: RunningServer, keyspace: Keyspace) -> None:
    """A server that forgot the scripts, as after a restart or failover, gets them at the next call."""
    topic = keyspace.topic()
    redis = Server(redis_server.url, connections=1, timeout=60.0)
    store = RedisStore(redis)
    with redis_server.client() as client:
        for due in (1, 2):
            await store.schedule(topic, [NewTimer("a", b"x", due=due)])
            timer = await store.get(topic, "a")
            assert timer is not None
            assert timer.due == due
            client.script_flush()
    await redis.aclose()


async def test_run_by_digest(valkey: RunningServer, keyspace: Keyspace) -> None:
    """The text crosses the wire once, and no function library is touched."""
    topic = keyspace.topic()
    redis = Server(valkey.url, connections=1, timeout=60.0)
    store = RedisStore(redis)
    with valkey.client() as client:
        client.script_flush()
        client.config_resetstat()
        for n in range(5):
            await store.schedule(topic, [NewTimer(f"t{n}", b"", due=n)])
        calls = {name: stats["calls"] for name, stats in client.info("commandstats").items()}
    assert (calls["cmdstat_eval"], calls["cmdstat_evalsha"]) == (1, 5)
    assert not [name for name in calls if "function" in name or "fcall" in name]
    await redis.aclose()


def test_digests() -> None:
    """Each script's digest is that of its own text."""
    assert Script("timeline/get").sha != Script("timeline/get", source("timeline/get") + "\n").sha
    assert len({Script(verb).sha for verb in VERBS}) == len(VERBS)


def test_a_relay_reads_all_scripts_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call waits for a file, and one that is missing ends the start."""
    scripts = Scripts(KeyNames())
    scripts.load()
    assert {"timeline/claim", "timeline/claim+journal", "people/stats"} <= scripts._scripts.keys()
    monkeypatch.setattr(module, "verbs", lambda: ("people/missing",))
    with pytest.raises(FileNotFoundError, match="missing"):
        scripts.load()


@pytest.mark.checkout
@pytest.mark.parametrize("verb", [*VERBS, "bulk/pace"])
def test_a_script_says_what_it_does(verb: str) -> None:
    """Its header begins with its name and purpose and tells KEYS, ARGV, returns, errors and the race."""
    path = Path(__file__).parents[2] / "lua" / f"{verb}.lua"
    header = path.read_text().partition("\n\n")[0].splitlines()
    assert all(line.startswith("--") for line in header)
    assert re.match(rf"-- {verb}\.lua: \w.*", header[0])
    labels = [match[1] for line in header if (match := re.match(r"-- (KEYS|ARGV|Returns|Race)\b", line))]
    assert [label for n, label in enumerate(labels) if label not in labels[:n]] == [
        "KEYS",
        "ARGV",
        "Returns",
        "Race",
    ]
    errors = set(re.findall(r"fail\('(\w+)'", source(verb).partition(f"-- {verb}.lua")[2]))
    if "wrong_type()" in source(verb).partition(f"-- {verb}.lua")[2]:
        errors.add("WRONGKEYTYPE")
    if "on_its_way(" in source(verb).partition(f"-- {verb}.lua")[2]:
        errors.add("LEAVING")
    assert errors == set(re.findall(r"error (?!OOM)([A-Z]+)", "\n".join(header)))
    words = set(re.findall(r"(?<!=)= '([A-Z]{2,})'|'([A-Z]{2,})'$", path.read_text(), re.MULTILINE))
    assert all(any(word and f"'{word}'" in "\n".join(header) for word in pair) for pair in words)


@pytest.mark.checkout
@pytest.mark.parametrize("verb", [*VERBS, "bulk/pace"])
def test_rules_that_can_be_read_off(verb: str) -> None:
    """Keys come in KEYS only, no Lua number is returned or joined, and every range is limited."""
    code = SUBCOMMAND.sub(r"'\1', ", re.sub(r"--.*", "", source(verb).partition(f"-- {verb}.lua")[2]))
    assert "tostring" not in code.replace("tostring(n - 1)", ""), "an index is a small whole number"
    assert "KEYS[" not in code, "the loader gives each key its name"
    for command in re.findall(r"redis\.p?call\('(\w+)', ([^,)]+)", code):
        assert command == ("INFO", "'server'") or command[1] in {
            *manifest(verb).keys,
            "hash",
            "key",
            "JOURNAL",
            "layout",
            "move",
        }, command
    assert "LIMIT" in code or "BYSCORE" not in code
