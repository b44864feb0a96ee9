"""`relay doctor --acl`: each kind of work does with its own user, and a relay has no more than it needs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relay.cli.commands import app
from relay.cli.daemon.doctor_acl import rules
from relay.core.dispatch import Dispatch
from relay.core.errors import StoreRefused
from relay.core.outcomes import ClaimRequest, Limits, Verb
from relay.core.partitions import Layout
from relay.core.recurring.recurrence import Recurrence, Standing
from relay.core.recurring.rule import Rule
from relay.core.timers import KEEP_EXISTING, NewTimer
from relay.settings import Settings
from relay.store.bulk.applying import Applying, BatchLedger
from relay.store.bulk.columns_call import LoadRows, PackedRows
from relay.store.bulk.inserting import Inserting, RunLedger
from relay.store.bulk.lookup import present_now
from relay.store.bulk.resealing import Resealing, Sealed
from relay.store.bulk.scanning import cut, read
from relay.store.bulk.shared_rate import Pace
from relay.store.bulk.store import BulkStore
from relay.store.bulk.subjects import BulkSubjects
from relay.store.codec.contents import Contents
from relay.store.keys import KeyNames
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.recurrences import RedisRecurrences
from relay.store.server.blocking import BlockingServer
from relay.store.server.fitness import check_server
from relay.store.server.probing.acl import AclJob, rights
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.subjects import Subjects
from relay.store.timeline.topics import RedisTopics
from relay.trust.keyring import FileKeyring
from tests.servers import RunningServer
from tests.settlements import end_of
from tests.store import test_acl as documented

LATER, SECOND, N1 = documented.LATER, documented.SECOND, documented.N1
server = documented.server  # each kind of server

pytestmark = pytest.mark.checkout


def test_a_relay_gets_what_the_page_says() -> None:
    """There each rule is known to be needed, and all of them to be enough."""
    said = {
        rule for rule in documented.RULES + documented.MOVE_RULES if not rule.startswith(("on", ">", "reset"))
    }
    assert set(rights(AclJob.DAEMON, KeyNames())) == said
    for dispatch, more in (
        (Dispatch.LIST, documented.LIST_RULES),
        (Dispatch.STREAM, documented.STREAM_RULES),
    ):
        assert set(rights(AclJob.DAEMON, KeyNames(), [dispatch])) == {*said, *more}


def test_prefixes_topics_and_the_way_to_redis_count() -> None:
    told = {
        "redis": {"url": "redis://h/1", "timeline_key": "my_timeline"},
        "defaults": {"durability": "fsync"},
    }
    found = rules(Settings.model_validate(told), AclJob.DAEMON)
    assert {"~my_timeline:*", "+select", "+waitaof"} <= {*found}
    assert "~timers_timeline:*" not in found
    cluster = rules(Settings.model_validate({"redis": {"url": "redis+cluster://h"}}), AclJob.PRODUCER)
    assert "+cluster|slots" in cluster


def test_the_command_prints_a_line_for_each(tmp_path: Path) -> None:
    file = tmp_path / "relay.yaml"
    file.write_text("topics: {a: {dispatch: list}}")
    printed = CliRunner().invoke(app, ["doctor", "--acl", "-c", str(file)], prog_name="relay")
    lines = [shlex.split(line) for line in printed.stdout.splitlines() if not line.startswith("#")]
    assert [line[2] for line in lines] == [
        "relay-daemon",
        "relay-producer",
        "relay-pipeline",
        "relay-sealing",
    ]
    assert "+lrem" in lines[0]


async def test_a_relay_does_with_its_user(server: RunningServer) -> None:
    url = documented.become(server, rules(Settings(), AclJob.DAEMON))
    assert await documented.shortcomings(server, url, patience=60.0) == []
    assert await documented.moved(url) == []


async def test_a_producer_s_relay_does_with_its_user(server: RunningServer) -> None:
    """It starts, schedules, and takes nothing."""
    url = documented.become(server, rules(Settings(), AclJob.PRODUCER))
    async with Server(url, connections=2, timeout=60.0) as way:
        await check_server(way, allow_eviction=False)
        store = RedisStore(way)
        for _ in range(2):
            await store.schedule("t", [NewTimer("a", b"x", due=LATER)])
            assert await store.get("t", "a")
            assert (await store.list(Layout("t"), state=None, limit=3, cursor="")).timers
            await documented.recorded(way)
            await store.run("t", ["a"])
            await store.cancel("t", ["a"])
        with pytest.raises(StoreRefused):
            await store.claim("t", ClaimRequest(limit=3, lease=30 * SECOND, nonce=N1, max_bytes=1 << 20))


def test_jobs_do_with_their_user(server: RunningServer) -> None:
    """A load that replaces, one that can be repeated, a stream, a scan, and a look at what is there."""
    url = documented.become(server, rules(Settings(), AclJob.PIPELINE))
    with BulkStore(BlockingServer(url, journals=documented.JOURNALS)) as store:
        for topic in ("plain", "t"):
            rows = PackedRows.of(LoadRows(0, ["a"], [LATER], [b"x"], [], [LATER + 1]))
            store.replace(topic, rows)
            Pace(store, 1e6).turn(1)
            inserting = Inserting(store, "r", on_conflict=KEEP_EXISTING)
            inserting.insert(topic, rows)
            inserting.flush()
            ledger = RunLedger(store, "r")
            ledger.note_told(topic, [b"a", b"b"])
            assert ledger.is_told(topic, [b"b", b"c"]) == [True, False]
            for batch in (1, 2):
                BatchLedger(store, "s", batch).decided_elsewhere(f"{topic}#0 1 1", lambda: [b"a"])
                Applying(store, "s", batch).apply(topic, rows)
                store.flush()
            pages = [page for part in cut(store, topic, 2) for page in read(store, part, envelopes=True)]
            assert [page.timer_ids for page in pages] == [[b"a"]]
        assert store.topics() == ["plain", "t"]
        assert store.sealed(["plain", "t"]) == [False, False]
    with BlockingServer(url) as limited:
        assert list(present_now(limited, Layout("t"), ["a"])) == [(True, True)]


async def test_sealing_does_with_its_user(server: RunningServer, tmp_path: Path) -> None:
    """Timers, a recurrence, a dead letter and a subject get a key, and are counted by it. The user can't
    schedule."""
    file = tmp_path / "keyring.yaml"
    other = tmp_path / "other.yaml"
    other.write_text(f"write: k0\nkeys: {{k0: {{base64: {'A' * 43}=}}}}")
    file.write_text(f"write: k1\nkeys: {{k0: {{base64: {'A' * 43}=}}, k1: {{base64: {'B' * 42}A=}}}}")
    keyring = FileKeyring(file)
    async with Server(server.url, connections=2, timeout=60.0) as way:
        with server.client() as operator:
            operator.flushall()
        store, old = RedisStore(way), Contents(FileKeyring(other), lambda _: True)
        await Subjects(way, old).keep("t", ["ann"])
        await store.schedule("t", [NewTimer("a", b"x", due=1)])
        await store.claim("t", ClaimRequest(limit=3, lease=30 * SECOND, nonce=N1, max_bytes=1 << 20))
        await store.settle("t", [end_of("a", N1, Verb.REJECT)], limits=Limits(keep=True))
        await store.schedule("t", [NewTimer("b", b"x", due=LATER)])
        wanted = Recurrence("r", Rule(every=SECOND), b"x")
        kept = RedisRecurrences(way, Carrier(way))
        assert await kept.keep("t", None, wanted, Standing(1, 1, 0), 0, reason="put")
    url = documented.become(server, rules(Settings(), AclJob.SEALING), flush=False)
    with BulkStore(BlockingServer(url)) as sealing:
        done = Resealing(sealing).rotate("t", Contents(keyring), "k1")
        assert dict(done.changed) == dict.fromkeys(Sealed, 1)
        assert Resealing(sealing).count("t") == {kind: {"k1": 1} for kind in Sealed}
        with pytest.raises(StoreRefused):
            sealing.register("t")


async def test_subjects_by_their_users(server: RunningServer, tmp_path: Path) -> None:
    """A relay gives keys, reads with them and forgets. One that only schedules, and a load, give them and
    read with them."""
    file = tmp_path / "keyring.yaml"
    file.write_text(f"write: k0\nkeys: {{k0: {{base64: {'A' * 43}=}}}}")
    for job in (AclJob.PRODUCER, AclJob.PIPELINE, AclJob.DAEMON):
        contents = Contents(FileKeyring(file), lambda _: True)
        url = documented.become(server, rules(Settings(), job), flush=job is AclJob.PRODUCER)
        if job is AclJob.PIPELINE:
            with BulkStore(BlockingServer(url)) as bulk:
                subjects = BulkSubjects(bulk, contents)
                assert list(subjects.keep("t", ["ann", "ben"])) == ["ann", "ben"]
                other = BulkSubjects(bulk, Contents(FileKeyring(file)))
                assert list(other.look("t", ["ann", "cid"])) == ["ann"]
            continue
        async with Server(url, connections=2, timeout=60.0) as way:
            store, topics = RedisStore(way, contents=contents), RedisTopics(way, contents=contents)
            await store.schedule("t", [NewTimer("a", b"x", due=1, seal_with="ann")])
            reader = RedisStore(way, contents=Contents(FileKeyring(file)))
            found = await reader.get("t", "a")
            assert found is not None
            assert found.payload == b"x"
            if job is AclJob.PRODUCER:
                continue
            assert await topics.forget_subject("t", "ann")
            request = ClaimRequest(limit=3, lease=30 * SECOND, nonce=N1, max_bytes=1 << 20)
            (claimed,) = (await store.claim("t", request)).timers
            assert claimed.unopened is not None
            assert claimed.unopened.forgotten
