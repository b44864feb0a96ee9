"""Which JWTs are taken, and what is said about those that are not."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from relay.core.errors import KeysAway, Unauthenticated
from relay.trust import keys
from relay.trust.files import BadFile
from relay.trust.jwts import Issuer, Jwts
from relay.trust.keys import FileKeys, Key, KeysAddress, UrlKeys
from tests.trust.authority import Signer

LEEWAY = 30.0


class Kept:
    """Keys in memory."""

    def __init__(self, signer: Signer) -> None:
        self.generation = 1
        self.keys: dict[str, Key] = dict(keys.parse(signer.jwks(Signer("spare")).encode()))

    async def find(self, kid: str) -> Key | None:
        return self.keys.get(kid)


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer()


@pytest.fixture
def kept(signer: Signer) -> Kept:
    return Kept(signer)


@pytest.fixture
def jwts(kept: Kept) -> Jwts:
    return Jwts([Issuer("cluster", Signer.ISSUER, Signer.AUDIENCE, kept)], LEEWAY)


async def test_the_name_has_the_settings_word_for_the_issuer(signer: Signer, jwts: Jwts) -> None:
    owner = await jwts.owner(signer.token(aud=["other", "relay"]))
    assert owner.name == "jwt:cluster:system:serviceaccount:shop:orders"


async def test_the_skew_of_clocks_is_bounded(signer: Signer, jwts: Jwts) -> None:
    await jwts.owner(signer.token(lasts=-LEEWAY / 2))
    with pytest.raises(Unauthenticated, match="has expired"):
        await jwts.owner(signer.token(lasts=-LEEWAY - 5))


def unsigned(signer: Signer, algorithm: str, key: Any = None) -> str:
    claims = jwt.decode(signer.token(), options={"verify_signature": False})
    return jwt.encode(claims, key, algorithm=algorithm, headers={"kid": signer.kid})


def signed_with_the_public_key(signer: Signer) -> str:
    """An HMAC whose secret everybody knows. PyJWT would not make it."""
    public = signer.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head, body, _ = signer.token().split(".")
    header = json.dumps({"alg": "HS256", "kid": signer.kid}).encode()
    head = base64.urlsafe_b64encode(header).rstrip(b"=").decode()
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    made = signature.sign(f"{head}.{body}".encode(), public)
    return f"{head}.{body}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}"


BAD: dict[str, Callable[[Signer], str]] = {
    "another audience": lambda signer: signer.token(aud="other"),
    "issuer that this relay does not take": lambda signer: signer.token(iss="https://other.example"),
    "none of the keys": lambda signer: signer.token(kid="unknown"),
    "not valid yet": lambda signer: signer.token(nbf=4_000_000_000),
    "has no exp": lambda signer: signer.token(exp=None),
    "has no sub": lambda signer: signer.token(sub=None),
    "has no aud": lambda signer: signer.token(aud=None),
    "can't be used as a name": lambda signer: signer.token(sub="a\nb"),
    "wrong signature": lambda signer: Signer(signer.kid).token(),
    "algorithm that is not allowed": lambda signer: unsigned(signer, "none"),
    "algorithm that is not allowed ": signed_with_the_public_key,
    "no JWT": lambda _: "a.b.c",
    "no JWT ": lambda signer: signer.token() * 100,
}


@pytest.mark.parametrize("what", BAD)
async def test_a_bad_token_is_refused_and_not_quoted(signer: Signer, jwts: Jwts, what: str) -> None:
    token = BAD[what](signer)
    with pytest.raises(Unauthenticated, match=what.strip()) as caught:
        await jwts.owner(token)
    assert token not in str(caught.value)


async def test_a_verified_token_ends_with_its_key(signer: Signer, kept: Kept, jwts: Jwts) -> None:
    token = signer.token()
    await jwts.owner(token)
    await jwts.owner(token)
    del kept.keys[signer.kid]
    kept.generation += 1
    with pytest.raises(Unauthenticated, match="none of the keys"):
        await jwts.owner(token)


async def test_a_verified_token_is_remembered_until_it_expires(
    signer: Signer, kept: Kept, jwts: Jwts, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = signer.token(lasts=10)
    end = jwt.decode(token, options={"verify_signature": False})["exp"] + LEEWAY
    await jwts.owner(token)
    kept.keys.clear()  # so that only the memory knows it
    await jwts.owner(token)
    monkeypatch.setattr("relay.trust.jwts.time.time", lambda: end + 1)
    with pytest.raises(Unauthenticated, match="none of the keys"):
        await jwts.owner(token)


def test_keys_that_can_not_be_used_are_left_out(signer: Signer, tmp_path: Path) -> None:
    weak = jwt.algorithms.RSAAlgorithm.to_jwk(
        rsa.generate_private_key(65537, 1024).public_key(), as_dict=True
    )
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"}
    entries = [signer.public, {**weak, "kid": "weak"}, secret, {**signer.public, "kid": "e", "use": "enc"}]
    found = keys.parse(json.dumps({"keys": entries}).encode())
    assert set(found) == {"one", ""}
    assert found["one"].algorithms == ("ES256",)
    file = tmp_path / "jwks.json"
    for content, problem in (
        *((text, "is not a JWKS") for text in ("{}", "x", "[" * 200_000)),
        ('{"keys": []}', "holds no key"),
    ):
        file.write_text(content)
        with pytest.raises(BadFile, match=f"^authentication.jwt.0.jwks: .*{problem}"):
            FileKeys("authentication.jwt.0.jwks", file).load()


class Fetched:
    """What stands for the URL: what it answers, and how often it was asked."""

    def __init__(self) -> None:
        self.content: bytes | None = None
        self.asked = 0

    def __call__(self, _: KeysAddress) -> bytes:
        self.asked += 1
        if self.content is None:
            raise OSError("away")
        return self.content


async def test_an_unknown_key_is_fetched_and_not_too_often(
    signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    web, reports, now = Fetched(), list[bool](), [1000.0]
    monkeypatch.setattr("relay.trust.keys.fetch", web)
    monkeypatch.setattr("relay.trust.keys.time.monotonic", lambda: now[0])
    source = UrlKeys("jwks", KeysAddress("https://issuer.example/jwks"), lambda _, good: reports.append(good))
    jwts = Jwts([Issuer("cluster", Signer.ISSUER, Signer.AUDIENCE, source)], LEEWAY)
    with pytest.raises(KeysAway):
        await jwts.owner(signer.token())
    web.content = signer.jwks().encode()
    with pytest.raises(KeysAway):
        await jwts.owner(signer.token())
    assert web.asked == 1
    now[0] += keys.MIN_PAUSE
    await jwts.owner(signer.token())
    newer = Signer("two")
    web.content = signer.jwks(newer).encode()
    for _ in range(3):
        with pytest.raises(Unauthenticated, match="none of the keys"):
            await jwts.owner(newer.token())
    now[0] += keys.MIN_PAUSE
    await jwts.owner(newer.token())
    now[0] += keys.MIN_PAUSE
    web.content = None
    with pytest.raises(Unauthenticated, match="none of the keys"):
        await jwts.owner(Signer("three").token())
    await jwts.owner(newer.token())  # those before stay
    assert web.asked == 4
    assert reports == [False, True, True, False]


@pytest.mark.parametrize("garbage", [http.client.BadStatusLine("x"), http.client.IncompleteRead(b"")])
async def test_an_issuer_that_speaks_no_http_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, garbage: Exception
) -> None:
    """http.client's errors are neither of the system's nor of values."""

    def fetch(_: KeysAddress) -> bytes:
        raise garbage

    monkeypatch.setattr("relay.trust.keys.fetch", fetch)
    reports = list[bool]()
    source = UrlKeys("jwks", KeysAddress("https://issuer.example/jwks"), lambda _, good: reports.append(good))
    assert await source.find("one") is None
    assert reports == [False]
