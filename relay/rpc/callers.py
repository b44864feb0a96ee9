"""The callers of gRPC."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from relay.core.errors import ServiceError, Unauthenticated
from relay.core.trust.principals import caller
from relay.rpc.errors import abort
from relay.rpc.unreadable import Admit

if TYPE_CHECKING:
    from relay.trust.identity import Identity  # with cryptography, which only some relays need

CERTIFICATE = "x509_pem_cert"
"""The name of the verified certificate in gRPC's context of a connection."""


def admission(identity: Identity, refused: Callable[[], None]) -> Admit:
    """Make what notes the caller of each call, and ends calls of callers who prove nothing; `refused` is
    called for each of those."""

    async def admit(context: Any) -> None:
        certificates = context.auth_context().get(CERTIFICATE)
        shown = [text for name, text in context.invocation_metadata() or () if name == "authorization"]
        try:
            caller.set(await identity.of(certificates[0] if certificates else None, shown))
        except ServiceError as failure:
            if isinstance(failure, Unauthenticated):
                refused()
            await abort(context, failure)

    return admit
