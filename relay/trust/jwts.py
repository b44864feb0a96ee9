"""JSON Web Tokens (RFC 7519) of the issuers that the settings name."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import jwt

from relay.core.errors import KeysAway, Unauthenticated
from relay.core.trust.principals import Principal
from relay.trust.keys import Key, KeySource
from relay.trust.names import is_plain

REQUIRED = ["iss", "sub", "aud", "exp"]
MOST_VERIFIED = 4096
"""The most tokens that are remembered as verified."""

MOST_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Issuer:
    """A signer of tokens: `name` is ours, `issuer` the one in its tokens."""

    name: str
    issuer: str
    audience: str
    keys: KeySource


@dataclass(frozen=True, slots=True)
class _Verified:
    principal: Principal
    until: float
    generation: int
    keys: KeySource


class Jwts:
    """Verifies JWTs. A token that was found good is remembered by its hash, until it ends or its issuer's
    keys change."""

    def __init__(self, issuers: Sequence[Issuer], leeway: float) -> None:
        self._issuers = issuers
        self._leeway = leeway
        self._verified: dict[bytes, _Verified] = {}

    async def owner(self, token: str) -> Principal:
        """Whose token it is. Raises `Unauthenticated`, which says what is wrong and quotes nothing."""
        digest = sha256(token.encode()).digest()
        known = self._verified.get(digest)
        if known and known.generation == known.keys.generation and time.time() < known.until:
            return known.principal
        self._verified.pop(digest, None)
        header, claims = _read(token)
        candidates = [each for each in self._issuers if each.issuer == claims.get("iss")]
        if not candidates:
            raise Unauthenticated("authorization: the JWT is of an issuer that this relay does not take")
        failure: Unauthenticated | None = None
        for issuer in candidates:  # an issuer may be there once for each audience
            try:
                return await self._verify(token, header, issuer, digest)
            except Unauthenticated as wrong:
                failure = wrong
        assert failure is not None
        raise failure

    async def _verify(self, token: str, header: dict[str, Any], issuer: Issuer, digest: bytes) -> Principal:
        kid = header.get("kid", "")
        generation = issuer.keys.generation
        key = await issuer.keys.find(kid) if isinstance(kid, str) else None
        if key is None and not issuer.keys.generation:
            raise KeysAway
        if key is None:
            raise Unauthenticated(
                "authorization: the JWT is signed by none of the keys that its issuer publishes"
            )
        claims = self._decoded(token, key, issuer)
        subject = claims["sub"]
        if not isinstance(subject, str) or not is_plain(subject):
            raise Unauthenticated("authorization: the sub of the JWT can't be used as a name")
        principal = Principal(f"jwt:{issuer.name}:{subject}")
        if len(self._verified) >= MOST_VERIFIED:
            self._verified.clear()
        until = float(claims["exp"]) + self._leeway
        self._verified[digest] = _Verified(principal, until, generation, issuer.keys)
        return principal

    def _decoded(self, token: str, key: Key, issuer: Issuer) -> dict[str, Any]:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.public,
                algorithms=list(key.algorithms),
                audience=issuer.audience,
                issuer=issuer.issuer,
                leeway=self._leeway,
                options={"require": REQUIRED},
            )
        except jwt.PyJWTError as error:
            raise Unauthenticated(f"authorization: the JWT {_what(error)}") from None
        return claims


def _read(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and claims, which nobody has verified. Raises `Unauthenticated`."""
    try:
        if len(token) > MOST_BYTES:
            raise jwt.DecodeError
        whole = jwt.decode_complete(token, options={"verify_signature": False})
    except jwt.PyJWTError:
        raise Unauthenticated("authorization: the token is not one of this relay's, and no JWT") from None
    return whole["header"], whole["payload"]


def _what(error: jwt.PyJWTError) -> str:
    """Say what is wrong, as the end of a sentence. PyJWT's own words may quote the token."""
    match error:
        case jwt.ExpiredSignatureError():
            return "has expired; get a new one"
        case jwt.ImmatureSignatureError() | jwt.InvalidIssuedAtError():
            return "is not valid yet; check the clocks"
        case jwt.InvalidAudienceError():
            return "is for another audience"
        case jwt.MissingRequiredClaimError():
            return f"has no {error.claim}"
        case jwt.InvalidSignatureError():
            return "has a wrong signature"
        case jwt.InvalidAlgorithmError():
            return "has an algorithm that is not allowed"
        case _:
            return "can't be verified"
