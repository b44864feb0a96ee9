"""relay doctor against real servers, each in a bad state of its own, and healthy ones."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from typer.testing import CliRunner

from relay.cli.commands import app
from relay.cli.daemon import doctor_findings
from relay.core.dispatch import Dispatch, DispatchState, GroupStats
from relay.core.instants import SECOND
from relay.core.partitions import Layout, place_of
from relay.core.policy import TopicPolicy
from relay.core.recurring.recurrence import Recurrence, Standing
from relay.core.recurring.rule import Rule
from relay.core.timers import TopicStats
from relay.settings import Settings
from relay.store.bulk.sweeping import Loading
from relay.store.examine import ServerFacts
from relay.store.one_place import OnePlace
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.recurrences import RedisRecurrences
from relay.store.server.blocking import BlockingServer
from relay.store.server.server import Server
from relay.store.timeline.calendars import RedisCalendars
from tests.cli.doctored import AOF, WELL, Seen, server
from tests.missing import need
from tests.sentinels import Group
from tests.servers import Kind, RunningServer, free_port
from tests.tls import Authority
from tests.worlds.waiting import eventually


@pytest.fixture(scope="module")
def healthy() -> Iterator[RunningServer]:
    with server() as started:
        yield started


@pytest.fixture(autouse=True)
def _clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """The doctor leaves nothing behind, whatever it found."""
    yield
    if "healthy" in request.fixturenames:
        shared: RunningServer = request.getfixturevalue("healthy")
        with shared.client() as client:
            left = [key for key in client.keys("*") if b"doctor" in key and client.ttl(key) == -1]
            client.flushall()
            assert left == []


@pytest.mark.parametrize("kind", ["valkey", "redis-6", "redis-8"])
def test_nothing_wrong(doctor: Any, kind: Kind) -> None:
    """A server as it should be: every line is ok, and no key is left."""
    with server(kind) as well:
        seen = doctor(well, topics={"orders": {}})
        assert (seen.code, seen.results("wrong"), seen.results("note")) == (0, [], [])
        assert seen.results("ok") == [
            *("settings", "redis", "eviction", "persistence", "commands", "durability", "clock", "latency"),
            *("permissions", "wake hints", "topics", "nodes"),
        ]
        with well.client() as client:
            left = [key for key in client.keys("*") if client.ttl(key) == -1]
            assert left == [b"timers_topics"], "the topic that is configured, and nothing else"
            assert client.smembers("timers_topics") == {b"orders"}


def test_for_people(healthy: RunningServer, patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAY_REDIS__URL", healthy.url)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0, result.stdout
    assert result.stdout.splitlines()[1].split()[:3] == ["ok", "redis", "Valkey"]
    assert re.fullmatch(r"0 wrong, 0 to note, \d+ ok\n", result.stderr)


def test_wrong_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each problem has a line, and secrets have none."""
    monkeypatch.setenv("RELAY_REDIS__URL", "http://:hunter2@h")
    monkeypatch.setenv("RELAY_DEFAULTS__LEASE_TTL", "banana")
    seen = Seen(CliRunner().invoke(app, ["doctor", "--json"]))
    assert (seen.code, seen.results("wrong")) == (1, ["settings", "settings"])
    assert "hunter2" not in json.dumps(seen.lines)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://127.0.0.1:1/0", "nobody listens there"),
        ("redis://no-such-host.invalid/0", "the host's name is not known"),
        ("unix:///none/redis.sock", "there is no such socket"),
        ("redis+sentinel://127.0.0.1:1/main/0", "no Sentinel tells where the master 'main' is"),
    ],
)
def test_out_of_reach(doctor: Any, url: str, words: str) -> None:
    seen = doctor(url)
    assert (seen.code, seen.results("wrong")) == (4, ["redis"])
    assert words in seen.of("redis")[1]


def test_a_frozen_server(doctor: Any) -> None:
    with server() as frozen:
        frozen.freeze()
        result, message = doctor(frozen, redis={"start_timeout": 0.3}).of("redis")
    assert (result, "no answer: is the server frozen" in message) == ("wrong", True), message


@pytest.mark.parametrize("login", ["", "relay:wrong-secret@"])
def test_wrong_credentials(doctor: Any, login: str) -> None:
    with server(config={"requirepass": "right-secret"}) as locked:
        seen = doctor(locked.url.replace("://", f"://{login}"))
    result, message = seen.of("redis")
    assert (seen.code, result) == (4, "wrong")
    assert "the user or the password is wrong, or missing" in message
    assert "secret" not in json.dumps(seen.lines)


@pytest.mark.slow
def test_tls(doctor: Any, tmp_path: Path) -> None:
    """A CA that is not trusted is told, and TLS spoken to a plain port; with the CA all is well."""
    need("openssl")
    need("redis-server")
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    config = {
        "tls-port": "0",
        "tls-cert-file": str(pair.certificate),
        "tls-key-file": str(pair.key),
        "tls-ca-cert-file": str(authority.ca.certificate),
        "tls-auth-clients": "no",
    }
    with server() as plain:
        seen = doctor(
            plain.url.replace("redis:", "rediss:"), redis={"start_timeout": 1.0}
        )  # it never answers
        assert "does the server speak TLS on this port?" in seen.of("redis")[1]
    port = free_port()
    with server("redis-system", {**config, "tls-port": str(port)}):
        url = f"rediss://127.0.0.1:{port}/0"
        assert "no CA that is trusted here has signed" in doctor(url).of("redis")[1]
        assert doctor(f"{url}?ssl_ca_certs={authority.ca.certificate}").code == 0


def test_a_replica(doctor: Any, healthy: RunningServer) -> None:
    with server() as replica:
        with replica.client() as client:
            client.replicaof("127.0.0.1", healthy.port)
        seen = doctor(replica)
    assert (seen.code, seen.of("redis")[0]) == (4, "wrong")
    assert "this is a replica: name the master" in seen.of("redis")[1]


@pytest.mark.parametrize(("allowed", "result"), [(False, "wrong"), (True, "note")])
def test_eviction(doctor: Any, allowed: bool, result: str) -> None:
    with server(config={"maxmemory-policy": "allkeys-lru"}) as evicting:
        seen = doctor(evicting, redis={"allow_eviction": allowed})
    assert seen.of("eviction")[0] == result
    assert seen.code == (0 if allowed else 1)


def test_eviction_of_what_has_a_time_to_live(doctor: Any) -> None:
    with server(config={"maxmemory-policy": "volatile-ttl"}) as evicting:
        seen = doctor(evicting)
    assert (seen.code, seen.of("eviction")[0]) == (0, "note")
    assert "volatile-ttl" in seen.of("eviction")[1]
    assert "no key that holds timers has one" in seen.of("eviction")[1]


@pytest.mark.parametrize(
    ("save", "words"), [("", "loses every timer"), ("3600 1", "loses all since the last one")]
)
def test_persistence(doctor: Any, save: str, words: str) -> None:
    with server(config={"appendonly": "no", "save": save}) as volatile:
        seen = doctor(volatile)
    assert (seen.code, seen.of("persistence")[0]) == (0, "note")
    assert words in seen.of("persistence")[1]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "an OK can mean stored, fsync; no replica is online"),
        (
            {"appendonly": "no"},
            "an OK can mean stored; fsync needs the server's append-only file, which is off",
        ),
        ({"appendfsync": "no"}, "fsync needs appendfsync everysec or always"),
    ],
    ids=["file", "none", "never-synced"],
)
def test_durability(doctor: Any, config: dict[str, str], words: str) -> None:
    """What the server can give; and a setting that asks for what it can't is wrong."""
    with server(config=config) as there:
        seen = doctor(there, topics={"orders": {"durability": "fsync"}})
    first, *others = seen.all_of("durability")
    assert first["result"] == "ok"
    assert words in first["message"]
    assert bool(others) == bool(config)
    for line in others:
        assert line["result"] == "wrong"
        assert line["message"].startswith("topics.orders.durability: fsync needs ")


@pytest.mark.slow
def test_a_master_that_may_come_back(doctor: Any) -> None:
    """Behind Sentinel, who asks for replicas is told to have a master without any refuse writes."""
    topics = {"orders": {"durability": "replicas:1"}, "mails": {"durability": "fsync"}}
    with Group(config=AOF) as group:
        before = doctor(group.url, topics=topics)
        alone = doctor(group.servers[0], topics=topics)  # nothing is known to replace it
        for each in group.servers:
            each.control.config_set("min-replicas-to-write", 1)
        after = doctor(group.url, topics=topics)
    (note,) = (line["message"] for line in before.all_of("durability") if line["result"] == "note")
    assert note.startswith("topics.orders.durability: replicas:1 outlives a failover only if")
    assert "min-replicas-to-write" in note
    for seen in (alone, after):
        assert (seen.code, seen.of("durability")[0]) == (0, "ok")


def test_full(doctor: Any) -> None:
    """At its maxmemory a server refuses to store, and the doctor is not stuck."""
    with server(config={"maxmemory": "1mb"}) as full:
        seen = doctor(full)
    assert seen.of("memory")[0] == "note"
    assert seen.code == 1
    assert any("schedule" in line["message"] for line in seen.lines if line["check"] == "permissions")


@pytest.mark.parametrize("hash_tags", [False, True])
def test_a_cluster(doctor: Any, hash_tags: bool) -> None:
    """One node with all slots: fine as a Cluster, or with hash tags, and wrong without."""
    with server(config={"cluster-enabled": "yes"}) as node:
        with node.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
            eventually(
                lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"), "the cluster is up"
            )
        seen = doctor(node, redis={"hash_tags": hash_tags})
        cluster = doctor(node, redis={"url": f"redis+cluster://127.0.0.1:{node.port}"})
    assert seen.code == (0 if hash_tags else 1)
    if not hash_tags:
        assert "with redis+cluster://" in seen.of("cluster")[1]
    assert cluster.code == 0
    assert "a Cluster, of which 1 masters answer" in cluster.of("redis")[1]


def user(healthy: RunningServer, *rules: str) -> str:
    with healthy.client() as operator:
        operator.execute_command("ACL", "DELUSER", "limited")
        operator.execute_command("ACL", "SETUSER", "limited", "on", ">pw", "~*", "&*", "+@all", *rules)
    return healthy.url.replace("://", "://limited:pw@")


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        ("-zadd", "schedule"),
        ("-xadd", "keep dead letters"),
        ("-evalsha", "schedule"),
        ("-set", "pause"),
        ("-sadd", "register topics"),
        ("-zrangebyscore", "claim"),
    ],
)
def test_missing_permissions(doctor: Any, healthy: RunningServer, rule: str, what: str) -> None:
    """What the user may not do is named, with the server's words and what to do."""
    seen = doctor(user(healthy, rule), topics={"orders": {}})
    assert seen.code == 1
    messages = [line["message"] for line in seen.lines if line["check"] == "permissions"]
    assert any(f"does not let us {what}: " in message for message in messages), messages
    assert all("give the user what docs/how-to/redis.md lists" in message for message in messages)


@pytest.mark.slow
@pytest.mark.checkout
def test_the_documented_rights_and_no_less(doctor: Any) -> None:
    """With the ACL line of docs/how-to/redis.md nothing is wrong; without any one rule of it something is.

    Whatever is missing, nothing of the doctor's own topic stays, unless there is no right to remove it.
    """
    from tests.store.test_acl import RULES, become

    with server() as strict:

        def told(rules: list[str]) -> list[str]:
            seen: Seen = doctor(become(strict, rules), topics={"orders": {"journal": True}})
            with strict.client() as operator:
                left = [key for key in operator.keys("*relay-doctor*") if operator.ttl(key) == -1]
            assert left == [] or "+del" not in rules, left
            return seen.results("wrong") + seen.results("note")

        assert told(RULES) == []
        optional = {"on", "resetchannels", "+client|setname"}  # the last is for people
        for rule in RULES:
            if rule not in optional and not rule.startswith(">"):
                assert told([each for each in RULES if each != rule]), rule


def test_commands_that_are_lacking(doctor: Any) -> None:
    """Each by name, whether relays start, and what to do; what only a change of partitions needs is told."""
    from tests.store.test_acl import LIST_RULES, RULES, become

    with server() as strict:
        rules = [*RULES, *LIST_RULES]
        seen = doctor(become(strict, rules))
        assert seen.of("commands")[0] == "ok"
        assert "but for RENAME, HGETALL, HKEYS to change how many partitions" in seen.of("commands")[1]
        without = become(strict, [rule for rule in rules if rule not in ("+zmscore", "+xtrim", "+lrem")])
        told = {line["message"].split(",")[0]: line for line in doctor(without).all_of("commands")}
        assert list(told) == [f"the server refuses the command {name}" for name in ("ZMSCORE", "XTRIM")]
        vital, other = told.values()
        assert "+zmscore" in vital["message"]
        assert vital["message"].endswith("relays do not start")
        assert "relays do not start" not in other["message"]
        topics = {"orders": {"dispatch": "list"}}
        names = {
            line["message"].split(",")[0].split()[-1]
            for line in doctor(without, topics=topics).all_of("commands")
        }
        assert names == {"ZMSCORE", "XTRIM", "LREM"}


@pytest.mark.parametrize("command", ["EVAL", "ZMSCORE"])
def test_commands_that_were_renamed(doctor: Any, command: str) -> None:
    with server(config={"rename-command": f"{command} NOBODYS"}) as renamed:
        seen = doctor(renamed)
    assert seen.code == 1
    assert command in seen.of("commands")[1]
    assert "rename-command" in seen.of("commands")[1]


@pytest.mark.parametrize("rule", ["-subscribe", "resetchannels"])
def test_hints_that_are_not_heard(doctor: Any, healthy: RunningServer, rule: str) -> None:
    """Relay works without, so it is to note and not wrong."""
    seen = doctor(user(healthy, rule))
    assert (seen.code, seen.results("wrong")) == (0, [])
    messages = [line["message"] for line in seen.lines if line["check"] == "wake hints"]
    assert any(message.startswith("Redis does not let us subscribe to them: ") for message in messages)


def test_hints_that_are_not_published(doctor: Any, healthy: RunningServer) -> None:
    """By scripts, as relays do it, and outside of them, as bulk loads do."""
    seen = doctor(user(healthy, "-publish"))
    assert (seen.code, seen.results("wrong")) == (0, [])
    messages = [line["message"] for line in seen.lines if line["check"] == "wake hints"]
    assert [message.split(":")[0] for message in messages] == [
        "Redis does not let scripts publish them",
        "Redis does not let us publish them, as bulk loads do",
    ]
    assert all("late by max_polling_interval" in message for message in messages)


def test_a_user_without_any_right(doctor: Any, healthy: RunningServer) -> None:
    seen = doctor(user(healthy, "-@all"))
    assert (seen.code, seen.of("redis")[0]) == (1, "wrong")
    assert "refuses the command INFO, which Relay needs to tell a master" in seen.of("redis")[1]
    assert "+info, as docs/how-to/redis.md lists it" in seen.of("redis")[1]


def test_keys_of_another_type(doctor: Any, healthy: RunningServer) -> None:
    with healthy.client() as client:
        client.set("timers_timeline:orders", "x")
        client.sadd("timers_topics", "other")
        client.rpush("timers_dead:other", "x")
    seen = doctor(healthy, topics={"orders": {}})
    assert seen.code == 1
    messages = [line["message"] for line in seen.lines if line["check"] == "keys"]
    assert "timers_timeline:orders holds a string and should hold a zset" in messages[0]
    assert "timers_dead:other holds a list and should hold a stream" in messages[1]


def test_overdue_dead_and_paused(doctor: Any, healthy: RunningServer) -> None:
    with healthy.client() as client:
        client.sadd("timers_topics", "late", "dying", "paused")
        client.zadd("timers_timeline:late", {"x": time.time() - 300})
        client.hset("timers_payloads:late", "x", "")
        client.xadd("timers_dead:dying", {"timer_id": "x"})
        client.zadd("timers_timeline:paused", {"x": time.time() - 300})
        client.set("timers_pause:paused", str(int(time.time() + 60) * 1_000_000))
    seen = doctor(healthy)
    assert (seen.code, seen.results("wrong")) == (1, ["overdue"])
    assert re.search(r"'late' has 1 timer due, the first for 3\d\d s", seen.of("overdue")[1])
    assert "'dying' has 1 dead letter:" in seen.of("dead")[1]
    assert "'paused' is paused, 1 due" in seen.of("paused")[1]


def killed(server: RunningServer, topic: str, *, ago: float, kept: float) -> None:
    """Leave the marks of a sweep that was killed: by its script, which reckons from now."""
    with BlockingServer(server.url) as blocking:
        told = Loading(blocking).open(
            topic,
            "7",
            "driver",
            lock=int(-ago * SECOND),
            ttl=int(kept),
            epoch="e",
            store="s",
            place="file:/cold store",
        )
    assert told == "e"


def test_sweeps_that_were_killed(doctor: Any, healthy: RunningServer) -> None:
    """Each with the command that ends it; one that is at work, or has only just died, is no finding."""
    for topic, ago, kept in [
        ("stopped", 300.0, 9_000.0),
        ("left", 90_000.0, -3_600.0),
        ("busy", 5.0, 9_000.0),
    ]:
        killed(healthy, topic, ago=ago, kept=kept)
        with healthy.client() as client:
            client.sadd("timers_topics", topic)
    seen = doctor(healthy)
    assert (seen.code, seen.results("note")) == (0, ["sweeps", "sweeps"])
    left, stopped = (line["message"] for line in seen.lines if line["check"] == "sweeps")
    assert re.match(r"a sweep or a restore of 'stopped' over file:/cold store stopped 3\d\d s ago", stopped)
    assert "relay pipeline sweep --cold 'file:/cold store' --topic stopped" in stopped
    assert "unlink" not in stopped, "timers that were delivered since it began would come again"
    assert "'left' over file:/cold store was given up" in left
    assert left.endswith("redis-cli -c unlink timers_marks:left")


def test_calendars_that_rules_name(doctor: Any, healthy: RunningServer) -> None:
    """Each that does not exist, with how many name it; a line where all do, and none where there are none."""

    async def kept() -> None:
        async with Server(healthy.url, connections=1, timeout=60.0) as server:
            recurrences = RedisRecurrences(server, Carrier(server))
            for n, names in enumerate((("de",), ("de", "fr-gone"), ())):
                wanted = Recurrence(f"r{n}", Rule(every=86_400_000_000, calendars=names))
                standing = Standing(1, 4_000_000_000_000_000)
                assert await recurrences.keep("orders", None, wanted, standing, 0, reason="put")

    async def there() -> None:
        async with Server(healthy.url, connections=1, timeout=60.0) as server:
            for name in ("de", "fr-gone"):
                await RedisCalendars(server).put(name, [])

    anyio.run(kept)
    with healthy.client() as client:
        client.sadd("timers_topics", "orders")
        seen = doctor(healthy)
        assert (seen.code, seen.results("note")) == (0, ["calendars", "calendars"])
        two, one = (line["message"] for line in seen.lines if line["check"] == "calendars")
        assert two.startswith(
            "2 recurrences of 'orders' name the calendar 'de', which does not exist, so that"
        )
        assert one.startswith("1 recurrence of 'orders' names the calendar 'fr-gone', which does not exist")
        assert "relay recur calendar put fr-gone --file FILE puts it" in one
        anyio.run(there)
        assert doctor(healthy).of("calendars") == ("ok", "2, and no rule names another one")
        client.delete("timers_topics:calendars")
        client.set("timers_topics:calendars", "x")
        seen = doctor(healthy)
        assert (seen.code, seen.of("calendars")[0]) == (1, "wrong")
        assert "timers_topics:calendars holds a string, not a hash" in seen.of("calendars")[1]


def test_a_killed_sweep_of_several_partitions(doctor: Any, healthy: RunningServer) -> None:
    """All that it has left is named, also where nothing is left of it in the first partition."""
    with healthy.client() as client:
        client.sadd("timers_topics", "orders")
        client.set("timers_leases:orders", "1 4")
    for number in (1, 2):
        killed(healthy, f"orders#{number} 1 4", ago=90_000.0 + number, kept=-3_600.0)
    message = doctor(healthy).of("sweeps")[1]
    assert "'orders' over file:/cold store was given up" in message
    assert message.endswith(
        "redis-cli -c unlink 'timers_marks:orders#1'; redis-cli -c unlink 'timers_marks:orders#2'"
    )


def test_the_set_of_topics_is_read_once(doctor: Any, healthy: RunningServer) -> None:
    """Though two sections go by it."""
    with healthy.client() as client:
        client.config_resetstat()
        doctor(healthy)
        stats: Any = client.info("commandstats")
    assert stats["cmdstat_sscan"]["calls"] == 3  # twice to see whether that is permitted


def test_marks_of_another_type(doctor: Any, healthy: RunningServer) -> None:
    """Relays' scripts refuse to end timers of such a topic."""
    with healthy.client() as client:
        client.set("timers_marks:orders", "x")
    seen = doctor(healthy, topics={"orders": {}})
    assert (seen.code, seen.results("wrong")) == (1, ["keys"])
    assert "timers_marks:orders holds a string and should hold a hash" in seen.of("keys")[1]


@contextmanager
def application(status: int | None) -> Iterator[str]:
    """Something that listens; with a status, it serves grpc.health.v1."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    if status is not None:
        servicer = health.HealthServicer()
        servicer.set("", status)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


@pytest.mark.parametrize(
    ("status", "result", "words"),
    [
        (health_pb2.HealthCheckResponse.SERVING, "ok", "is SERVING"),
        (health_pb2.HealthCheckResponse.NOT_SERVING, "wrong", "is NOT_SERVING: its timers wait"),
        (None, "note", "without grpc.health.v1"),
    ],
)
def test_pushed_applications(
    doctor: Any, healthy: RunningServer, status: int | None, result: str, words: str
) -> None:
    with application(status) as target:
        seen = doctor(healthy, topics={"p": {"delivery": {"mode": "push", "target": target}}})
    assert seen.of("push")[0] == result
    assert words in seen.of("push")[1]


def test_a_pushed_application_that_is_away(doctor: Any, healthy: RunningServer) -> None:
    seen = doctor(healthy, topics={"p": {"delivery": {"mode": "push", "target": "127.0.0.1:1"}}})
    assert (seen.code, seen.of("push")[0]) == (1, "wrong")
    assert "can't be reached" in seen.of("push")[1]
    assert "refused" in seen.of("push")[1]


def test_a_broken_disk() -> None:
    """A state that no server here can be brought into."""

    def wrong(facts: ServerFacts) -> list[str]:
        return [f.check for f in doctor_findings.fitness(Settings(), facts) if f.result == "wrong"]

    assert wrong(replace(WELL, writes_fail=True)) == ["persistence"]
    assert [f.result for f in doctor_findings.fitness(Settings(), WELL)] == ["ok", "ok"]


def test_clocks_and_round_trips() -> None:
    assert (doctor_findings.clock(0.9).result, doctor_findings.clock(-0.9).result) == ("ok", "ok")
    assert "3.2 s ahead of" in doctor_findings.clock(3.2).message
    assert "3.2 s behind" in doctor_findings.clock(-3.2).message
    assert (doctor_findings.latency(0.001).result, doctor_findings.latency(0.02).result) == ("ok", "note")


def test_a_group_that_takes_no_retries() -> None:
    """They wait for a relay of the group, for ever if none runs."""
    groups = [
        GroupStats("old", pending=2, unread=0, waiting=2, consumers=1, overdue=90.0),
        GroupStats("busy", pending=2, unread=0, waiting=2, consumers=1, overdue=0.5),
    ]
    (found,) = doctor_findings.behind("fan", DispatchState(Dispatch.STREAM, groups=tuple(groups)))
    assert (found.check, found.result) == ("groups", "wrong")
    assert "'old' of 'fan' has 2 timers waiting for another try, the first due for 90 s" in found.message


def test_what_is_just_due_is_not_overdue() -> None:
    stats = TopicStats("t", 100_000_000, 1, 1, 50_000_000, dead=0, oldest_death=None, paused_until=None)
    assert list(doctor_findings.dispatched(stats)) == []


def test_partitions(healthy: RunningServer, doctor: Any) -> None:
    """A layout is no key of a wrong type; what is dead in any partition is seen, and a wrong type of any."""
    with healthy.client() as client:
        client.set("timers_leases:orders", "1 4")
        client.xadd("timers_dead:orders#3", {"timer_id": "a"})
        seen = doctor(healthy, topics={"orders": {"partitions": 4}})
        assert (seen.code, seen.results("note")) == (0, ["dead"])
        assert seen.of("partitions") == ("ok", "'orders' has 4 partitions")
        assert "'orders' has 1 dead letter:" in seen.of("dead")[1]
        client.set("timers_payloads:orders#2", "theirs")
        seen = doctor(healthy, topics={"orders": {"partitions": 4}})
        assert "timers_payloads:orders#2 holds a string and should hold a hash" in seen.of("keys")[1]
        assert client.get("timers_leases:orders") == b"1 4"


def test_partitions_of_a_cluster() -> None:
    """How many each node has."""

    class Nodes(OnePlace):
        def of(self, topic: str) -> str:
            return "b:7001" if place_of(topic).endswith("#1") else "a:7000"

    async def ping() -> None: ...

    found = doctor_findings.partitioned(Layout("orders", 1, 4), Nodes(ping))
    assert found.message == "'orders' has 4 partitions: 3 at a:7000, 1 at b:7001"


def test_a_move_between_partitions(healthy: RunningServer, doctor: Any) -> None:
    """It is shown."""
    with healthy.client() as client:
        client.set("timers_leases:orders", "2 4 8")
        client.xadd("timers_dead:orders#7", {"timer_id": "a"})
        seen = doctor(healthy, topics={"orders": {"partitions": 8}})
        assert (seen.code, seen.results("note")) == (0, ["partitions", "dead"])
        assert seen.of("partitions") == ("note", "'orders' moves from 4 to 8 partitions, while relays run")
        client.set("timers_leases:orders", "3 8")
        assert doctor(healthy, topics={"orders": {"partitions": 8}}).results("note") == ["dead"]
        assert doctor(healthy, topics={"orders": {}}).results("note") == ["dead"]


@pytest.mark.parametrize(
    ("layout", "policy", "told"),
    [
        (Layout("my orders", 1, 4), TopicPolicy(partitions=8), ("has 4", "'my orders' --partitions 8")),
        (Layout("t", 2, 4, 2), TopicPolicy(partitions=4), ("moves to 2", "t --partitions 4")),
        (Layout("t"), TopicPolicy(partitions=2, journal=True), ("has 1", "t --partitions 2")),
        (Layout("t", 2, 4, 8), TopicPolicy(partitions=8), None),
        (Layout("t", 1, 4), TopicPolicy(), None),
    ],
)
def test_a_setting_with_another_number_of_partitions(
    layout: Layout, policy: TopicPolicy, told: tuple[str, str] | None
) -> None:
    """How the topic stands, and the command that changes it if there is one."""
    found = [finding.message for finding in doctor_findings.otherwise_set(layout, policy)]
    assert len(found) == (told is not None)
    if told is not None:
        stands, command = told
        assert (
            f"is set to have {policy.partitions} partitions, which is for new topics, and {stands}: "
            in found[0]
        )
        assert found[0].endswith(f"relay topics reshard {command} changes that")


def test_timers_in_partitions_that_are_not_in_use(healthy: RunningServer, doctor: Any) -> None:
    """A failover has undone the end of a move. Doctor counts them and says how they are delivered."""
    topics = {"orders": {"partitions": 2}}
    with healthy.client() as client:
        client.set("timers_leases:orders", "5 2")
        for number, text in ((2, "4 4 2"), (3, "4 4 2"), (4, "2 8 4")):
            client.set(f"timers_leases:orders#{number}", text)
        assert doctor(healthy, topics=topics).results("note") == []
        for number in (3, 6):
            client.zadd(f"timers_timeline:orders#{number}", {"a": 4_000_000_000})
            client.hset(f"timers_payloads:orders#{number}", "a", b"")
    (told,) = (line["message"] for line in doctor(healthy, topics=topics).lines if line["result"] == "note")
    assert told.startswith("2 timers of 'orders' in partitions that it has no more")
    assert "relay topics reshard orders --partitions 4 " in told


def test_a_topic_that_is_set_to_have_partitions(healthy: RunningServer, doctor: Any) -> None:
    """One of which nothing is kept gets them when it is born; one that has timers keeps its one."""
    topics = {"orders": {"partitions": 2}}
    assert doctor(healthy, topics=topics).results("note") == []
    with healthy.client() as client:
        client.zadd("timers_timeline:orders", {"a": 4_000_000_000})
        client.hset("timers_payloads:orders", "a", b"")
    assert "'orders' is set to have 2 partitions" in doctor(healthy, topics=topics).of("partitions")[1]


def test_a_name_from_before_there_were_partitions(healthy: RunningServer, doctor: Any) -> None:
    """Doctor says what the topic holds and how to remove it."""
    with healthy.client() as client:
        client.sadd("timers_topics", "old#1", "old#2")
        client.zadd("timers_timeline:old#1", {"a": 4_000_000_000})
        seen = doctor(healthy)
    told = {line["result"]: line["message"] for line in seen.lines if line["check"] == "names"}
    assert seen.code == 1
    assert "'old#1' has a # in its name" in told["wrong"]
    assert "it still holds 1 timer and 0 dead letters" in told["wrong"]
    assert told["note"].endswith("it is empty: redis-cli srem timers_topics 'old#2'")


DISPATCHED = {"jobs": {"dispatch": "list"}, "fan": {"dispatch": "stream", "stream": {"group": "billing"}}}


def test_lists_and_streams(healthy: RunningServer, doctor: Any) -> None:
    """All that a relay does with them is tried; a group that nobody reads for is wrong."""
    assert doctor(healthy, topics=DISPATCHED).code == 0
    with healthy.client() as client:
        client.xgroup_create("timers_stream:fan", "abandoned", "$", mkstream=True)
        client.xadd("timers_stream:fan", {"a": "b"})
        client.xreadgroup("abandoned", "gone", {"timers_stream:fan": ">"})
        client.xgroup_create("timers_stream:fan", "fresh", "0")
        client.lpush("timers_ready:jobs", "x")
        client.set("timers_taken:jobs", "theirs")
        seen = doctor(healthy, topics=DISPATCHED)
        assert seen.code == 1
        told = "\n".join(f"{finding['result']} {finding['message']}" for finding in seen.lines)
        assert "wrong timers_taken:jobs holds a string and should hold a hash" in told
        assert "wrong the group 'fresh' of 'fan' has no consumer and 1 entries to take" in told
        assert "'abandoned'" not in told  # it has a consumer, who may come back
        client.delete("timers_taken:jobs")
    told = "\n".join(finding["message"] for finding in doctor(healthy, topics=DISPATCHED).lines)
    assert "'jobs' has 1 entries in its ready list" in told
