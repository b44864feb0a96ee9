"""What the listeners of a relay prove and want to see proved, put together from its settings."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from relay.rpc import push
from relay.rpc.binding import Binding
from relay.rpc.callers import admission as rpc_admission
from relay.rpc.unreadable import Admit as RpcAdmit
from relay.settings import Settings
from relay.settings.trust import AnyTls, IssuerSettings, is_local
from relay.telemetry.metrics.catalogue import UNAUTHENTICATED
from relay.telemetry.metrics.instruments import Instruments
from relay.web.guard import Admit as WebAdmit
from relay.web.guard import admission as web_admission

if TYPE_CHECKING:  # with cryptography and PyJWT, which take 100 ms to import: only relays that use them pay
    from relay.trust.certificates import ListenerCertificate
    from relay.trust.files import Watch
    from relay.trust.identity import Identity
    from relay.trust.jwts import Jwts
    from relay.trust.keys import KeySource
    from relay.trust.tokens import Tokens

Loop = Callable[[], Coroutine[None, None, None]]


@dataclass(slots=True)
class Listeners:
    """What each listener is started with; None where nothing is configured, which then costs nothing."""

    binding: Binding
    admit_rpc: RpcAdmit | None = None
    admit_web: WebAdmit | None = None
    api_tls: ssl.SSLContext | None = None
    http_tls: ssl.SSLContext | None = None
    _loops: list[Loop] = field(default_factory=list)

    async def run(self) -> None:
        """Keep the keys that are fetched up to date until cancelled."""
        async with anyio.create_task_group() as tasks:
            for loop in self._loops:
                tasks.start_soon(loop)


def listeners_by(settings: Settings, count: Instruments, watch: Watch) -> Listeners:
    """Read all files that listeners and pushes need, and have those of listeners watched. Raises `BadFile`,
    which names the setting."""
    for policy in settings.policies().pushed().values():
        push.credentials(policy.target_tls)  # a wrong file ends the start, and not a relay that serves
    own = settings.grpc
    plain = Binding(own.listen, own.mode, own.socket_group)
    sections = (settings.grpc.tls, settings.http.tls, settings.api.tls)
    if not settings.authentication.is_on and not any(tls.certificate for tls in sections):
        return Listeners(plain)
    return _Trust(settings, count, watch).listeners(plain)


class _Trust:
    def __init__(self, settings: Settings, count: Instruments, watch: Watch) -> None:
        self._settings, self._count, self._watch = settings, count, watch
        self._loops: list[Loop] = []
        self._tokens = self._read_tokens()
        self._jwts = self._read_issuers()

    def listeners(self, plain: Binding) -> Listeners:
        settings = self._settings
        made = Listeners(plain, _loops=self._loops)
        refused = partial(self._count.count, UNAUTHENTICATED)
        certificate, identity = self._listener("grpc", settings.grpc.listen, settings.grpc.tls)
        if certificate is not None:
            made.binding = replace(plain, credentials=certificate.credentials())
        if identity is not None:
            made.admit_rpc = rpc_admission(identity, partial(refused, "grpc"))
        certificate, identity = self._listener("api", settings.api.listen, settings.api.tls)
        made.api_tls = None if certificate is None else certificate.context()
        if identity is not None:
            made.admit_web = web_admission(identity, partial(refused, "api"))
        certificate = self._certificate("http", settings.http.tls)
        made.http_tls = None if certificate is None else certificate.context()
        return made

    def _listener(
        self, section: str, listen: str, tls: AnyTls
    ) -> tuple[ListenerCertificate | None, Identity | None]:
        """Make the certificate of a listener, and what knows its callers. A relay beyond loopback without
        any authentication has `insecure` set: there all are anonymous."""
        certificate = self._certificate(section, tls)
        if tls.client_certificates == "off" and not self._settings.authentication.is_on:
            return certificate, None
        from relay.trust.identity import Identity

        identity = Identity(may_be_anonymous=is_local(listen), tokens=self._tokens, jwts=self._jwts)
        return certificate, identity

    def _certificate(self, section: str, tls: AnyTls) -> ListenerCertificate | None:
        if not tls.certificate or (section == "api" and not self._settings.serves_api):
            return None
        from relay.trust.certificates import CertificateFiles, ListenerCertificate

        files = CertificateFiles(
            f"{section}.tls",
            Path(tls.certificate),
            Path(tls.key),
            Path(tls.client_ca) if tls.client_ca else None,
            tls.client_certificates == "required",
        )
        certificate = ListenerCertificate(files)
        self._watch.add(certificate.source)
        return certificate

    def _read_tokens(self) -> Tokens | None:
        if not self._settings.authentication.tokens_file:
            return None
        from relay.trust.tokens import Tokens

        tokens = Tokens(Path(self._settings.authentication.tokens_file))
        self._watch.add(tokens.source)
        return tokens

    def _read_issuers(self) -> Jwts | None:
        if not self._settings.authentication.jwt:
            return None
        from relay.trust.jwts import Issuer, Jwts

        issuers = [
            Issuer(each.name, each.issuer, each.audience, self._keys(number, each))
            for number, each in enumerate(self._settings.authentication.jwt)
        ]
        return Jwts(issuers, self._settings.authentication.leeway)

    def _keys(self, number: int, issuer: IssuerSettings) -> KeySource:
        from relay.trust.keys import FileKeys, KeysAddress, UrlKeys

        setting = f"authentication.jwt.{number}.jwks"
        if issuer.jwks.startswith("https://"):
            address = KeysAddress(issuer.jwks, issuer.jwks_ca, issuer.jwks_token_file)
            fetched = UrlKeys(setting, address, self._watch.report)
            self._loops.append(fetched.run)
            return fetched
        kept = FileKeys(setting, Path(issuer.jwks))
        self._watch.add(kept.source)
        return kept
