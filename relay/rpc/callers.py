"""The callers of gRPC: known as a call begins, and proved once more while a stream stands."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from relay.api.access import Holding
from relay.core.errors import ServiceError, Unauthenticated
from relay.core.trust.principals import caller, proof
from relay.rpc.errors import abort
from relay.rpc.unreadable import Admit

if TYPE_CHECKING:
    from relay.trust.identity import Identity  # with cryptography, which only some relays need

CERTIFICATE = "x509_pem_cert"
"""The name of the verified certificate in gRPC's context of a connection."""

AGAIN = 5.0
"""Seconds between two proofs of a stream's caller."""

log = logging.getLogger(__name__)


def admission(identity: Identity, refused: Callable[[], None]) -> Admit:
    """Make what notes the caller of each call, and ends calls of callers who prove nothing; `refused` is
    called for each of those."""

    async def admit(context: Any) -> None:
        certificates = context.auth_context().get(CERTIFICATE)
        shown = [text for name, text in context.invocation_metadata() or () if name == "authorization"]
        prove = partial(identity.of, certificates[0] if certificates else None, shown)
        try:
            caller.set(await prove())
        except ServiceError as failure:
            if isinstance(failure, Unauthenticated):
                refused()
            await abort(context, failure)
        proof.set(prove if shown and not certificates else None)

    return admit


async def prove_again(right: Holding) -> None:
    """Prove the caller of the running call again and again, and take the right from one who can't be proved
    any more: the token has expired, or was taken back. What can't be asked now, such as the keys of an issuer
    that is away, takes nothing from anybody."""
    prove, known = proof.get(), caller.get()
    while prove is not None and not right.lost.is_set():
        await asyncio.sleep(AGAIN)
        try:
            found = await prove()
        except Unauthenticated as failure:
            lose(right, failure)
        except ServiceError as failure:
            log.warning(
                "a stream's caller can't be proved again now, and keeps the stream",
                extra={"principal": known.name, "reason": str(failure)},
            )
        except Exception as failure:
            # A fault must not end the proofs, and leave the stream to a token that nobody looks at any more.
            log.error(
                "the proof of a stream's caller failed, and is tried again",
                extra={"principal": known.name},
                exc_info=failure,
            )
        else:
            if found != known:
                lose(
                    right, Unauthenticated("authorization: the token has another name now; open a new stream")
                )


def lose(right: Holding, failure: Unauthenticated) -> None:
    """End a stream for this reason."""
    log.info("a stream ends with its token", extra={"principal": right.principal, "reason": str(failure)})
    right.lose(failure)
