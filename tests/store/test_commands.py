"""Commands that a server lacks, has renamed, or refuses: each is named, with what it is needed for."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from relay.core.errors import UnfitServer
from relay.store.server.fitness import check_server, lacking
from relay.store.server.manifest import verbs
from relay.store.server.probing.commands import BASE, OUTSIDE, TRIALS, Feature, Lack, lacks_in
from relay.store.server.scripts import source, variants
from relay.store.server.server import Server
from tests.servers import RunningServer, start_server
from tests.store.test_acl import CLUSTER_RULES, LIST_RULES, MOVE_RULES, RULES, STREAM_RULES, become
from tests.worlds.cluster.cluster import Cluster

pytestmark = pytest.mark.checkout

CALL = re.compile(r"redis\.p?call\('([A-Z]+)'")

ROOMS = {
    "timeline": BASE,
    "people": BASE,
    "recur": BASE,
    "layout": (*BASE, Feature.MOVES),
    "list": (*BASE, Feature.LIST),
    "stream": (*BASE, Feature.STREAM),
    "move": (*BASE, Feature.MOVES),
}
"""Which commands the scripts of a folder may run. Those of `bulk` are the pipeline's."""

BESIDE = {"SET", "DEL", "INFO", "PUBLISH"}
"""What the probe tries for itself; what each connection begins with; and hints, without which all works."""


def names(*features: Feature) -> set[str]:
    return {line.split()[0] for feature in features for line in TRIALS[feature]}


def granted(rules: list[str]) -> set[str]:
    """The commands of an ACL line."""
    return {rule[1:].partition("|")[0].upper() for rule in rules if rule.startswith("+")}


@pytest.mark.parametrize("room", ROOMS)
def test_what_scripts_run_is_tried(room: str) -> None:
    """No script runs a command that its features don't try."""
    texts = [source(name) for verb in verbs() if verb.startswith(f"{room}/") for name in variants(verb)]
    run = {command for text in texts for command in CALL.findall(text)}
    assert run - names(*ROOMS[room]) - BESIDE == set()


def test_nothing_is_tried_in_vain() -> None:
    """All that is tried is run by a script, or asked for by the code."""
    texts = [source(name) for verb in verbs() for name in variants(verb)]
    run = {command for text in texts for command in CALL.findall(text)}
    assert names(*Feature) - run == {"SSCAN"}, "which the list of topics is read by"


def test_the_documented_rules_are_those() -> None:
    """Each line of docs/how-to/redis.md grants what is tried for its features, and no more but what a relay
    sends outside scripts."""
    beside = {"CLIENT", "SUBSCRIBE", "UNSUBSCRIBE", *BESIDE, *OUTSIDE} - {"CLUSTER"}
    assert granted(RULES) == names(*BASE) | beside
    assert granted(LIST_RULES) == names(Feature.LIST)
    assert granted(STREAM_RULES) == names(Feature.STREAM)
    assert granted(MOVE_RULES) == names(Feature.MOVES)
    assert granted(CLUSTER_RULES) == {"CLUSTER", "ASKING", "SPUBLISH", "SSUBSCRIBE", "SUNSUBSCRIBE"}


# ------------------------------------------------------------------------- on real servers


async def found(url: str, *features: Feature) -> list[Lack]:
    async with Server(url, connections=1, timeout=60.0) as server:
        return await lacking(server, features or BASE)


@pytest.mark.every_server
async def test_servers_have_them_all(redis_server: RunningServer) -> None:
    """And the tries leave nothing behind."""
    with redis_server.client() as client:
        before = client.keys("*")
        assert await found(redis_server.url, *Feature) == []
        assert client.keys("*") == before


@pytest.fixture(scope="module")
def limited() -> Iterator[RunningServer]:
    with start_server("valkey") as server:
        yield server


@pytest.mark.parametrize("command", sorted((names(*Feature) | {"SET", "DEL"}) - {"TIME"}))
async def test_a_user_lacks_one(limited: RunningServer, command: str) -> None:
    """It is named, alone, with what it is needed for and the right to give."""
    rules = [*RULES, *LIST_RULES, *STREAM_RULES, *MOVE_RULES]
    (lack,) = await found(
        become(limited, [rule for rule in rules if rule != f"+{command.lower()}"]), *Feature
    )
    assert lack.command == command
    assert f"refuses the command {command}, which Relay needs {lack.purpose}" in str(lack)
    assert f"+{command.lower()}, as docs/how-to/redis.md" in str(lack)


@pytest.mark.parametrize("command", ["INFO", "TIME", "EVAL"])
async def test_a_user_lacks_what_comes_first(limited: RunningServer, command: str) -> None:
    """A connection begins with two of them, and the probe with EVAL."""
    url = become(limited, [rule for rule in RULES if rule != f"+{command.lower()}"])
    with pytest.raises(UnfitServer, match=rf"refuses the command {command}, .*\+{command.lower()}"):
        await start(url)


async def start(url: str) -> str:
    async with Server(url, connections=1, timeout=60.0) as server:
        return await check_server(server, allow_eviction=False)


async def test_a_relay_starts_without_what_few_timers_need(
    limited: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    """What only dead letters, recurrences or journals need is logged, with what does not work."""
    without = ["XTRIM", "HEXISTS", "ZSCAN", "XREVRANGE"]
    url = become(limited, [rule for rule in RULES if rule[1:].upper() not in without])
    await start(url)
    assert [record.__dict__["command"] for record in caplog.records] == without
    assert "for dead letters" in caplog.records[0].__dict__["problem"]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("ZMSCORE", "has no command ZMSCORE, which Relay needs to schedule"),
        ("EVAL", "runs no scripts"),
        ("TIME", "has no command TIME, which Relay needs to go by the server's clock"),
    ],
)
@pytest.mark.parametrize("new_name", ["NOBODYS", '""'], ids=["renamed", "missing"])
async def test_a_server_lacks_one(command: str, says: str, new_name: str) -> None:
    """By rename-command, or since it is an older server, or one without Lua."""
    with (
        start_server("valkey", config={"rename-command": f"{command} {new_name}"}) as server,
        pytest.raises(UnfitServer, match=says),
    ):
        await start(server.url)


@pytest.mark.parametrize(
    "words",
    ["ERR Could not find scripting engine 'lua'", "ERR Lua scripting disabled", "ERR unknown command 'EVAL'"],
)
def test_a_server_without_lua(words: str) -> None:
    """Lua is a module from Valkey 9.1 on, and may be left out."""
    assert "load its Lua module" in str(Lack("EVAL", "to run its scripts", words))


def test_other_refusals_are_no_lack() -> None:
    """A full server, a wrong type, and arguments that are no good: the command is there."""
    said = [
        b"OOM command not allowed when used memory > 'maxmemory'.",
        b"WRONGTYPE Operation against a key holding the wrong kind of value",
        b"ERR value is not a valid float",
        b"NOPERM No permissions to access a key",
    ]
    assert list(lacks_in([part for words in said for part in (b"ZADD", words)])) == []
    (lack,) = lacks_in([b"ZADD", b"ERR command is not allowed"])
    assert str(lack).startswith("the server refuses the command ZADD")


async def test_any_node_of_a_cluster() -> None:
    """A node whose user lacks a command is asked, too."""
    with Cluster(masters=2) as cluster:
        for node in cluster.nodes:
            rules = [*RULES, *CLUSTER_RULES]
            become(
                node, rules if node is cluster.nodes[0] else [rule for rule in rules if rule != "+zmscore"]
            )
        url = cluster.url.replace("://", "://relay:a-long-password@")
        assert [lack.command for lack in await found(url)] == ["ZMSCORE"]
