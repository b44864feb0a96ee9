"""The settings of listeners that strangers can reach: TLS, and by what callers prove who they are."""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, model_validator

from relay.core.endpoints import addresses
from relay.core.policy import TargetTls
from relay.settings import rules
from relay.settings.fields import Number, Section, field

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


def insecure(section: str) -> Any:
    """The field by which somebody takes the risk of a listener that strangers can reach."""
    return field(
        False,
        "",
        f"Serve although `{section}.listen` is beyond loopback and sockets and has no TLS, or callers who "
        "prove nothing. Say it only where the network itself keeps strangers away.",
    )


def socket_group() -> Any:
    """The field of a Unix socket's group."""
    return field(
        "",
        "",
        "The group of the Unix socket, by name or number. Empty leaves it to the system. It has no effect on "
        "TCP.",
    )


def _certificate() -> Any:
    return field(
        "",
        "",
        "The file of the listener's certificate, with those between it and its CA, as PEM. With it the "
        "listener speaks TLS, 1.2 or newer, and nothing else. A changed file is taken over within "
        "seconds; open connections stay.",
    )


def _key() -> Any:
    return field("", "", "The file of the certificate's private key, as PEM, without a passphrase.")


def _client_ca() -> Any:
    return field("", "", "The file of the CAs, as PEM, that callers' certificates must come from.")


class TlsSettings(Section):
    """TLS of a listener for HTTP."""

    certificate: str = _certificate()
    key: str = _key()
    client_ca: str = _client_ca()
    client_certificates: Annotated[Literal["off", "optional", "required"], BeforeValidator(rules.off)] = (
        field(
            "off",
            "",
            "Whether a caller's certificate is asked for. `optional` takes callers without one; a "
            "wrong one is refused by both.",
        )
    )

    @model_validator(mode="after")
    def _files_fit(self) -> Self:
        _files_fit(self.certificate, self.key, self.client_ca, self.client_certificates)
        return self


def _grpc_choice(value: Any) -> Any:
    if value == "optional":
        raise ValueError(
            "must be off or required: gRPC for Python can't ask for a certificate without requiring one; "
            "let callers without a certificate send tokens, with client_certificates: off"
        )
    return rules.off(value)


class GrpcTlsSettings(Section):
    """TLS of the gRPC listener."""

    certificate: str = _certificate()
    key: str = _key()
    client_ca: str = _client_ca()
    client_certificates: Annotated[Literal["off", "required"], BeforeValidator(_grpc_choice)] = field(
        "off", "", "Whether callers must show a certificate of `grpc.tls.client_ca`."
    )

    @model_validator(mode="after")
    def _files_fit(self) -> Self:
        _files_fit(self.certificate, self.key, self.client_ca, self.client_certificates)
        return self


AnyTls = TlsSettings | GrpcTlsSettings


def _files_fit(certificate: str, key: str, client_ca: str, asked: str) -> None:
    """Require each file that another setting needs. Raises `Misfit`."""
    if certificate and not key:
        raise rules.Misfit("key", "must name the file of the private key, since certificate is set")
    if key and not certificate:
        raise rules.Misfit("certificate", "must name the file of the certificate, since key is set")
    if client_ca and asked == "off":
        raise rules.Misfit("client_ca", "has no effect while client_certificates is off; set it to required")
    if asked != "off" and not client_ca:
        raise rules.Misfit("client_ca", f"must name a file, since client_certificates is {asked}")
    if asked != "off" and not certificate:
        raise rules.Misfit("certificate", f"must name a file, since client_certificates is {asked}")


class TargetTlsSettings(Section):
    """TLS to an application that the relay dials."""

    ca: str = field(
        "",
        "",
        "The file of the CAs, as PEM, that the application's certificate must come from. With it the relay "
        "dials by TLS. It and its neighbours are read at the start.",
    )
    certificate: str = field("", "", "The file of the certificate, as PEM, that the relay shows.")
    key: str = _key()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for name, other in (("certificate", "key"), ("key", "certificate"), ("certificate", "ca")):
            if getattr(self, name) and not getattr(self, other):
                raise rules.Misfit(other, f"must name a file, since {name} is set")
        return self

    def to_policy(self) -> TargetTls:
        """The settings in the form that the engine takes."""
        return TargetTls(**self.model_dump())


class IssuerSettings(Section):
    """One issuer of JWTs."""

    name: str = ""
    """How it is called in the names of callers: `jwt:name:subject`."""
    issuer: str = ""
    """The `iss` of its tokens."""
    audience: str = ""
    """What must be among their `aud`."""
    jwks: str = ""
    """Its public keys: a file, or an https URL."""
    jwks_ca: str = ""
    """The file of the CAs that the URL's certificate must come from; empty for the system's."""
    jwks_token_file: str = ""
    """A file with the token that the URL wants to see."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not _NAME.fullmatch(self.name):
            raise rules.Misfit("name", "must be 1 to 64 letters, digits, '.', '_' or '-', as in cluster")
        for wanted, hint in (
            ("issuer", "the iss of its tokens"),
            ("audience", "what this relay is called in the aud of its tokens"),
            ("jwks", "the file or the https:// URL of its public keys"),
        ):
            if not getattr(self, wanted):
                raise rules.Misfit(wanted, f"must be given: {hint}")
        if "://" in self.jwks and not self.jwks.startswith("https://"):
            raise rules.Misfit("jwks", "must be a file or an https:// URL: keys decide who is let in")
        if "@" in self.jwks.removeprefix("https://").partition("/")[0]:
            raise rules.Misfit("jwks", "must hold no credentials; use jwks_token_file")
        for name in ("jwks_ca", "jwks_token_file"):
            if getattr(self, name) and not self.jwks.startswith("https://"):
                raise rules.Misfit(name, "has no effect while jwks is a file")
        return self


def _list_from_text(value: Any) -> Any:
    """Read the list as an environment variable holds it, as JSON. Raises `ValueError`."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError('must be a list; as a variable it is JSON, as in [{"name": "cluster", …}]') from None


def _distinct(value: list[IssuerSettings]) -> list[IssuerSettings]:
    names = [each.name for each in value]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"must have one entry of each name, got {name!r} twice")
    return value


class AuthenticationSettings(Section):
    """By what callers prove who they are, beside their certificates."""

    tokens_file: str = field(
        "",
        "",
        "A file with a line `NAME HASH` for each static token, as `relay token new` writes it. It holds no "
        "secrets, and is read again when it changes.",
    )
    jwt: Annotated[list[IssuerSettings], BeforeValidator(_list_from_text), AfterValidator(_distinct)] = field(
        [],
        "",
        "The issuers whose JWTs are taken, each with `name`, `issuer`, `audience` and `jwks`, which is a "
        "file or an https URL, and for a URL `jwks_ca` and `jwks_token_file` where it wants them; see "
        "[tls-and-identity.md](../how-to/tls-and-identity.md). As a variable it is a list in JSON.",
    )
    leeway: Number = field(
        30.0,
        "seconds",
        "How far the clock of a JWT's issuer may be from this machine's.",
        ge=0,
        le=300,
    )

    @property
    def is_on(self) -> bool:
        """Whether a caller can prove anything without a certificate."""
        return bool(self.tokens_file or self.jwt)


def is_local(listen: str) -> bool:
    """Whether only this machine can reach the address."""
    if listen.startswith("unix:"):
        return True
    host, _ = addresses.split(listen)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def beyond_loopback(
    section: str, listen: str, tls: AnyTls, authentication: AuthenticationSettings, is_meant: bool
) -> None:
    """Refuse a listener that strangers can reach, unless it has TLS and they must prove who they are, or
    `insecure` is set. Raises `Misfit`."""
    if is_meant or is_local(listen):
        return
    shown = listen.encode(errors="backslashreplace").decode()  # an error's message holds no surrogates
    where = f"since {section}.listen is {shown}, which others than this machine can reach"
    if not tls.certificate:
        raise rules.Misfit(
            f"{section}.tls.certificate",
            f"must name a file, {where}; or set {section}.insecure: true if the network keeps strangers away",
        )
    if tls.client_certificates == "off" and not authentication.is_on:
        raise rules.Misfit(
            f"{section}.tls.client_certificates",
            f"must be required, {where}; or let callers send tokens, by authentication.tokens_file or "
            f"authentication.jwt; or set {section}.insecure: true if the network keeps strangers away",
        )
