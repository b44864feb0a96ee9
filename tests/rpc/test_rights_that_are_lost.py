"""Streams that are open while a policy changes, or their callers' tokens."""

from __future__ import annotations

from pathlib import Path

import anyio
import grpc
import pytest

from relay.api.access import Access, Holding
from relay.client import CallError, Delivery, RelayClient
from relay.core.errors import Unauthenticated
from relay.core.trust.access import AccessPolicy, AccessRule
from relay.core.trust.globs import Glob
from relay.core.trust.principals import Principal, proof
from relay.core.trust.verbs import AccessVerb
from relay.rpc import callers, delivery_service
from relay.rpc.callers import admission
from relay.trust import tokens
from relay.trust.identity import Identity
from relay.trust.jwts import Issuer, Jwts
from relay.trust.keys import Key
from tests.trust.authority import Signer
from tests.trust.test_jwts import Kept
from tests.worlds.engine.served import Served, gone, put, served
from tests.worlds.engine.stubs import Stream
from tests.worlds.waiting import PATIENCE

DENIED = "the policy does not give anonymous the verb deliver on topic 'u'"


def allowing(*topics: str) -> AccessPolicy:
    verbs = frozenset(AccessVerb)
    return AccessPolicy([AccessRule("it", [Glob("anonymous")], [Glob(each) for each in topics], verbs)])


async def ended(stream: Stream) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.finish_reading()
    return caught.value


async def test_a_stream_that_loses_a_topic_settles_what_it_has_and_is_told_why() -> None:
    """It gets nothing more, of its other topics neither. A stream that loses nothing goes on."""
    access = Access(allowing("t", "u"))
    async with served(access=access) as relay:
        loses, keeps = await relay.stream().open("t", "u"), await relay.stream().open("t")
        await put(relay, "a", topic="u")
        (delivery,) = await loses.deliveries(1)
        access.use(allowing("t"))
        assert (await loses.next()).WhichOneof("message") == "drain"
        await put(relay, "b")
        assert (await keeps.delivery()).timer_id == "b"
        await loses.ack([delivery])
        await loses.call.done_writing()
        why = await ended(loses)
        assert (why.code(), why.details()) == (grpc.StatusCode.PERMISSION_DENIED, DENIED)
        access.use(allowing("u", "t"))
        await gone(relay, "a", topic="u")


async def test_a_stream_that_does_not_go_by_itself_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has is released, and no attempt counts against what was not received."""
    monkeypatch.setattr(delivery_service, "LEAVE", 0.05)
    access = Access(allowing("u"))
    async with served(access=access) as relay:
        stream = await relay.stream().open("u")
        await put(relay, "a", topic="u")
        await stream.deliveries(1)
        access.use(allowing("t"))
        assert (await ended(stream)).details() == DENIED
        access.use(allowing("u"))
        again = await (await relay.stream().open("u")).delivery()
        assert (again.timer_id, again.attempt) == ("a", 1)


async def test_the_client_finishes_its_handler_and_says_why_it_ends() -> None:
    """The policy changes in the midst of a handler, whose outcome counts."""
    access = Access(allowing("u"))
    async with served(access=access) as relay:
        await in_the_midst(relay, access)


async def in_the_midst(relay: Served, access: Access) -> None:
    began, may_end = anyio.Event(), anyio.Event()
    client = RelayClient(relay.server.address)

    @client.on("u")
    async def handle(_: Delivery) -> None:
        began.set()
        await may_end.wait()

    async def run() -> None:
        with pytest.raises(CallError) as caught:
            await client.run()
        assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED
        assert caught.value.message == DENIED

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await put(relay, "a", topic="u")
            await began.wait()
            access.use(allowing("t"))
            may_end.set()
    access.use(allowing("u"))
    await gone(relay, "a", topic="u")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "AGAIN", 0.02)


async def test_a_stream_ends_with_its_token(tmp_path: Path, quick: None) -> None:
    """It was taken out of the file: the stream settles what it has, gets nothing more, and says why. One of
    another token goes on, and so does one that showed nothing."""
    made, file = [tokens.new() for _ in range(2)], tmp_path / "tokens"
    lines = [tokens.line(f"n{number}", token) + "\n" for number, token in enumerate(made)]
    file.write_text("".join(lines))
    known = tokens.Tokens(file)
    known.load()
    admit = admission(Identity(may_be_anonymous=True, tokens=known), lambda: None)
    async with served(admit=admit) as relay:
        loses = await relay.stream(made[0]).open("u")
        keeps, shows_nothing = await relay.stream(made[1]).open("t"), await relay.stream().open("v")
        await put(relay, "a", topic="u")
        (delivery,) = await loses.deliveries(1)
        file.write_text(lines[1])
        known.load()
        assert (await loses.next()).WhichOneof("message") == "drain"
        for name, stream in (("t", keeps), ("v", shows_nothing)):
            await put(relay, f"of {name}", topic=name)
            assert (await stream.delivery()).timer_id == f"of {name}"
        await loses.ack([delivery])
        await loses.call.done_writing()
        why = await ended(loses)
        assert why.code() is grpc.StatusCode.UNAUTHENTICATED
        assert why.details() == "authorization: the token is not one that this relay takes"
        await gone(relay, "a", topic="u")
        file.write_text(lines[1].replace("n1", "another"))
        known.load()
        assert (await keeps.next()).WhichOneof("message") == "drain"
        await keeps.call.done_writing()
        assert "has another name now" in ((await ended(keeps)).details() or "")


async def test_a_stream_ends_when_its_jwt_expires(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it does not go by itself. An issuer whose keys are away ends nothing."""
    monkeypatch.setattr(delivery_service, "LEAVE", 0.05)
    signer, away = Signer(), anyio.Event()

    class Keys(Kept):
        async def find(self, kid: str) -> Key | None:
            if not self.generation:
                away.set()
            return await super().find(kid) if self.generation else None

    keys = Keys(signer)
    jwts = Jwts([Issuer("cluster", Signer.ISSUER, Signer.AUDIENCE, keys)], 0.0)
    admit = admission(Identity(may_be_anonymous=False, jwts=jwts), lambda: None)
    async with served(admit=admit) as relay:
        stream = await relay.stream(signer.token(lasts=1.5)).open("u")
        keys.generation = 0
        with anyio.fail_after(PATIENCE):
            await away.wait()
        keys.generation = 2
        why = await ended(stream)
        assert why.code() is grpc.StatusCode.UNAUTHENTICATED
        assert why.details() == "authorization: the JWT has expired; get a new one"


async def test_a_proof_that_fails_is_tried_again(quick: None) -> None:
    """By a fault that nobody has foreseen. The stream must not stand for ever for that, unproved."""
    right = Holding("a", AccessVerb.DELIVER, ["t"])
    failures: list[Exception] = [Unauthenticated("it has expired"), KeyError("a fault")]

    async def prove() -> Principal:
        raise failures.pop()

    proof.set(prove)
    with anyio.fail_after(PATIENCE):
        await callers.prove_again(right)
    assert str(right.why) == "it has expired"
