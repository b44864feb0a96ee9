"""The principal of a caller, by what the caller has shown."""

from __future__ import annotations

from collections.abc import Sequence

from relay.core.errors import Unauthenticated
from relay.core.trust.principals import ANONYMOUS, Principal
from relay.trust.jwts import Jwts
from relay.trust.names import of_certificate
from relay.trust.tokens import BEGINNING, Tokens

BEARER = "bearer "


class Identity:  # see 0106
    """Knows the callers of one listener. `may_be_anonymous` says whether those who show nothing are served,
    as on loopback and sockets; whoever shows something wrong is refused even there."""

    def __init__(
        self, *, may_be_anonymous: bool, tokens: Tokens | None = None, jwts: Jwts | None = None
    ) -> None:
        self._may_be_anonymous = may_be_anonymous
        self._tokens = tokens
        self._jwts = jwts

    async def of(self, certificate: bytes | None, authorizations: Sequence[str | bytes]) -> Principal:
        """The caller with this verified certificate (PEM or DER) and these `authorization` headers. Raises
        `Unauthenticated`.

        A certificate decides alone: what else the caller sends is not looked at.
        """
        if certificate is not None:
            return of_certificate(certificate)
        if not authorizations:
            if self._may_be_anonymous:
                return ANONYMOUS
            raise Unauthenticated(self._missing())
        if len(authorizations) > 1:
            raise Unauthenticated("authorization: must come once")
        given = authorizations[0]
        if not isinstance(given, str) or not given.lower().startswith(BEARER):
            raise Unauthenticated("authorization: must be Bearer and a token")
        return await self._of_token(given[len(BEARER) :].strip())

    def _missing(self) -> str:
        if self._tokens is None and self._jwts is None:
            return "the caller has no client certificate, which this relay wants to see"
        return "authorization: is missing; send Bearer and a token"

    async def _of_token(self, token: str) -> Principal:
        if self._tokens is not None and token.startswith(BEGINNING):
            owner = self._tokens.owner(token)
            if owner is not None:
                return owner
        elif self._jwts is not None and token.count(".") == 2:
            return await self._jwts.owner(token)
        raise Unauthenticated("authorization: the token is not one that this relay takes")
