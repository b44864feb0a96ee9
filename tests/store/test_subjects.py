"""Keys of subjects: one for each, which all relays share, until it is forgotten for good."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from relay.core.errors import ContentSealed, InvalidField
from relay.core.outcomes import Again, ClaimRequest, Ending, Limits, Settlement, Verb, Verdict
from relay.core.timers import Content, NewTimer
from relay.core.trust.sealing import SUBJECT, Unopened, subject_id
from relay.store.codec.subjects import KNOWN, SubjectKeys
from relay.store.server.scripts import Call
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.store.test_resealing import contents

SECOND = 1_000_000
KEEP = Limits(keep=True)


class Desk:
    """What one relay knows of a topic, with a clock of its own."""

    def __init__(self, url: str, topic: str, directory: Path, *keys: str) -> None:
        self.topic, self.now = topic, 1_000.0
        self.server = Server(url, connections=2, timeout=60.0)
        self.contents = contents(directory, *keys or ("k1",))
        assert self.contents.subjects is not None
        self.contents.subjects._now = lambda: self.now
        self.timers = RedisStore(self.server, contents=self.contents)
        self.topics = RedisTopics(self.server, contents=self.contents)
        self._nonces = 0

    async def schedule(self, *timers: tuple[str, str]) -> None:
        """Schedule timers by id and subject, due at once."""
        new = [NewTimer(name, name.encode(), due=1, seal_with=subject) for name, subject in timers]
        await self.timers.schedule(self.topic, new)

    async def claim(self, limit: int = 500) -> dict[str, bytes | Unopened]:
        """Claim what is due: the payloads, or why they don't open."""
        self._nonces += 1
        self.nonce = b"%016d" % (self._nonces + id(self) % 10**9 * 100)
        request = ClaimRequest(limit, 3600 * SECOND, self.nonce, 1 << 20)
        timers = (await self.timers.claim(self.topic, request)).timers
        return {each.timer_id: each.unopened or each.payload for each in timers}

    async def keep_all(self, names: list[str]) -> None:
        """Have the keys of subjects, as a call that schedules has them."""
        await self.timers._subjects.keep(self.topic, names)

    async def settle(self, timer_id: str, ending: Ending, limits: Limits = KEEP) -> Any:
        (told,) = await self.timers.settle(
            self.topic, [Settlement(self.nonce, ending, [timer_id])], limits=limits
        )
        return told

    @property
    def key(self) -> str:
        return self.server.keys.key("subjects", self.topic)


@pytest.fixture
async def desks(
    valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> AsyncIterator[tuple[Desk, Desk]]:
    """Two relays of one topic."""
    topic = keyspace.topic("subjects")
    keyspace.allow(f"*{topic}*")
    pair = Desk(valkey.url, topic, tmp_path), Desk(valkey.url, topic, tmp_path)
    yield pair
    for each in pair:
        await each.server.aclose()


def sent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a relay sends from now on: the verbs of scripts, and commands."""
    found: list[str] = []
    call, ask = desk.server.call, desk.server.ask

    async def called(each: Call[Any]) -> Any:
        found.append(each.verb)
        return await call(each)

    async def asked(*command: Any) -> Any:
        found.append(command[0])
        return await ask(*command)

    monkeypatch.setattr(desk.server, "call", called)
    monkeypatch.setattr(desk.server, "ask", asked)
    return found


async def test_a_forgotten_subject_is_unreadable_and_others_are_not(desks: tuple[Desk, Desk]) -> None:
    """Its timers say so at the relay that forgets and at any other one, its name is refused, and of what
    comes with it in a store call nothing is written. Who never was a subject can't be forgotten. No name of
    a subject is in Redis."""
    one, other = desks
    await one.schedule(("a", "ann"), ("a2", "ann"), ("b", "ben"), ("n", ""))
    assert await one.topics.forget_subject(one.topic, "nobody") is None
    since_then = await one.topics.forget_subject(one.topic, "ann")
    assert since_then is not None
    assert await other.topics.forget_subject(one.topic, "ann") == since_then
    with pytest.raises(ContentSealed, match="'a' is sealed for a subject that was forgotten"):
        await other.timers.get(one.topic, "a")
    found = await one.claim()
    assert found.pop("b") == b"b"
    assert found.pop("n") == b"n"
    assert {each.forgotten for each in found.values() if isinstance(each, Unopened)} == {True}
    assert found.keys() == {"a", "a2"}
    for relay in desks:
        with pytest.raises(InvalidField, match=r"seal_with.*was forgotten") as refused:
            await relay.schedule(("c", "ben"), ("d", "ann"))
        assert "ann" not in str(refused.value)
        assert await relay.timers.get(one.topic, "c") is None
    assert b"ann" not in repr(await one.server.ask("HGETALL", one.key)).encode()


async def test_two_relays_that_give_a_subject_its_key_share_one(desks: tuple[Desk, Desk]) -> None:
    """The race: both have found none, and both bring a new one."""
    one, other = desks
    sent, gate = asyncio.Event(), asyncio.Event()
    call = one.server.call

    async def gated(each: Call[Any]) -> Any:
        if each.verb == "subjects/keep":
            sent.set()
            await gate.wait()
        return await call(each)

    one.server.call = gated  # type: ignore[assignment, method-assign]
    slow = asyncio.create_task(one.schedule(("a", "ann")))
    await sent.wait()
    await other.schedule(("b", "ann"))
    before = await one.server.ask("HGETALL", one.key)
    gate.set()
    await slow
    assert await one.server.ask("HGETALL", one.key) == before
    assert await one.claim() == {"a": b"a", "b": b"b"}


async def test_a_timer_that_is_written_as_its_subject_is_forgotten(desks: tuple[Desk, Desk]) -> None:
    """The race: a relay has the key, somebody has the subject forgotten, the timer is written. No key comes
    back by that: whoever claims it finds that it is forgotten."""
    one, other = desks
    await one.schedule(("first", "ann"))
    call = one.server.call

    async def raced(each: Call[Any]) -> Any:
        if each.verb == "timeline/schedule":
            await other.topics.forget_subject(one.topic, "ann")
        return await call(each)

    one.server.call = raced  # type: ignore[assignment, method-assign]
    await one.schedule(("late", "ann"))
    found = await other.claim()
    assert [isinstance(each, Unopened) and each.forgotten for each in found.values()] == [True, True]


async def test_a_relay_uses_a_key_for_a_few_seconds_only(desks: tuple[Desk, Desk]) -> None:
    """KNOWN seconds after somebody else has had the subject forgotten, it does not open any more, and seals
    nothing."""
    one, other = desks
    await one.schedule(("a", "ann"), ("b", "ann"))
    await other.topics.forget_subject(one.topic, "ann")
    one.now += KNOWN - 0.1
    await one.schedule(("c", "ann"))
    assert list((await one.claim(1)).values()) == [b"a"]
    one.now += 0.1
    with pytest.raises(InvalidField, match="forgotten"):
        await one.schedule(("d", "ann"))
    assert all(isinstance(each, Unopened) and each.forgotten for each in (await one.claim()).values())


async def test_a_call_asks_once_and_a_plain_one_never(
    desks: tuple[Desk, Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many subjects cost a call one command more, and none once they are known; timers without a subject cost
    none, nor does a settlement."""
    one, other = desks
    first, second = sent(one, monkeypatch), sent(other, monkeypatch)
    await one.schedule(("plain", ""))
    await other.claim()
    assert (first, second) == (["timeline/schedule"], ["timeline/claim"])
    await one.schedule(*[(f"t{n}", f"s{n}") for n in range(300)])
    await one.schedule(*[(f"u{n}", f"s{n}") for n in range(300)])
    assert first[1:] == ["subjects/keep", "timeline/schedule", "timeline/schedule"]
    assert len(await other.claim(300)) == len(await other.claim(300)) == 300
    await other.settle("u0", Ending(Verb.ACK))
    assert second[1:] == ["timeline/claim", "HMGET", "timeline/claim", "timeline/settle"]


async def test_a_key_that_is_lost_is_missing_and_not_forgotten(desks: tuple[Desk, Desk]) -> None:
    """Without its tombstone nobody knows whether the key comes back: such a timer is put aside. That the
    subject has another key since does not make it look as if somebody had changed it."""
    one, other = desks
    await one.schedule(("a", "ann"))
    kept = await one.server.ask("DUMP", one.key)
    await one.server.ask("DEL", one.key)
    field = subject_id(one.topic, "ann")
    with pytest.raises(ContentSealed, match=f"the key 'subject:{field}.+' of a subject, which Redis lacks"):
        await other.timers.get(one.topic, "a")
    await other.schedule(("b", "ann"))
    other.now += KNOWN
    found = await other.claim()
    assert found["b"] == b"b"
    assert isinstance(found["a"], Unopened)
    assert (found["a"].tampered, found["a"].forgotten) == (False, False)
    assert found["a"].key_id.startswith(SUBJECT)
    await one.server.ask("RESTORE", one.key, 0, kept, "REPLACE")
    other.now += KNOWN
    stored = await other.timers.get(one.topic, "a")
    assert stored is not None
    assert stored.payload == b"a"


async def test_a_key_whose_own_key_is_missing(desks: tuple[Desk, Desk], tmp_path: Path) -> None:
    """A relay that lacks the keyring's key puts timers aside by its name, and refuses to seal by it."""
    one, _ = desks
    await one.schedule(("a", "ann"))
    keyring = contents(tmp_path, "k2")._keyring
    assert keyring is not None
    keys = SubjectKeys(keyring)
    field = subject_id(one.topic, "ann")
    keys.learn(one.topic, [field], await one.server.ask("HMGET", one.key, field))
    with pytest.raises(InvalidField, match="sealed with key 'k1', which the keyring lacks"):
        keys.to_seal(one.topic, field)


async def test_another_payload_of_a_timer_keeps_its_subject(desks: tuple[Desk, Desk]) -> None:
    """A handler that reschedules with a new payload: it is sealed with the same key. If the subject is
    forgotten meanwhile, nothing of the new payload is written."""
    one, other = desks
    await one.schedule(("a", "ann"), ("b", ""))
    request = ClaimRequest(2, 3600 * SECOND, b"n" * 16, 1 << 20)
    for_ann, plain = (await one.timers.claim(one.topic, request)).timers
    one.nonce = b"n" * 16
    again = Ending(Verb.RESCHEDULE, again=Again(due=1, content=Content(b"next")))
    assert await one.settle("a", again.of(for_ann, lambda: 0)) is Verdict.OK
    assert await one.settle("b", again.of(plain, lambda: 0)) is Verdict.OK
    stored = await one.server.ask("HGETALL", one.server.keys.key("payloads", one.topic))
    assert [SUBJECT.encode() in stored[name] for name in (b"a", b"b")] == [True, False]
    assert await other.claim() == {"a": b"next", "b": b"next"}
    await one.topics.forget_subject(one.topic, "ann")
    other.now += KNOWN
    assert await other.settle("a", again.of(for_ann, lambda: 0)) is Verdict.OK
    assert stored[b"a"] == await one.server.ask("HGET", one.server.keys.key("payloads", one.topic), "a")


async def test_a_call_of_the_most_subjects(desks: tuple[Desk, Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 timers, each of a subject of its own, which is the most that a call may bring: a script takes a
    part of them only."""
    one, _ = desks
    scripts = sent(one, monkeypatch)
    names = [f"s{n}" for n in range(10_000)]
    for relay_call in range(2):  # the second finds them all known
        await one.keep_all(names)
        assert scripts == ["subjects/keep"] * 10, relay_call
    assert await one.server.ask("HLEN", one.key) == 10_000


async def test_a_key_that_a_failover_lost_is_given_back_by_a_relay_that_knows_it(
    desks: tuple[Desk, Desk],
) -> None:
    """The race: a relay has sealed with a key that it knows, and Redis has lost that key. As the relay asks
    for it again, it offers the one that it knows, and no new one: what it has sealed opens. It does not
    bring back a subject that was forgotten."""
    one, other = desks
    await one.schedule(("a", "ann"))
    await one.server.ask("DEL", one.key)
    await one.schedule(("b", "ann"))
    one.now += KNOWN
    await one.schedule(("c", "ann"))
    assert await other.claim() == {"a": b"a", "b": b"b", "c": b"c"}
    await other.topics.forget_subject(one.topic, "ann")
    one.now += KNOWN
    with pytest.raises(InvalidField, match="forgotten"):
        await one.schedule(("d", "ann"))
    assert (await one.server.ask("HVALS", one.key))[0].startswith(b"!")
