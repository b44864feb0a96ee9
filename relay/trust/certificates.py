"""The certificate of a listener, as gRPC and asyncio take it, and again whenever its files have changed."""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from relay.trust.files import BadFile, WatchedFiles, read


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where the certificate of a listener is. `section` is its settings', such as `grpc.tls`; `client_ca` is
    None if callers are asked for no certificate, and else they must have one if it is `required`."""

    section: str
    certificate: Path
    key: Path
    client_ca: Path | None = None
    required: bool = False


class ListenerCertificate:  # see 0106
    """What a listener proves by, and by which CAs its callers do. Add its `source` to a `Watch`."""

    def __init__(self, files: CertificateFiles) -> None:
        self._files = files
        self._pems: tuple[bytes, bytes, bytes | None] | None = None  # key, chain, CAs of callers
        self._given: tuple[bytes, bytes, bytes | None] | None = None
        self._context: ssl.SSLContext | None = None
        self._changed_at = 0
        paths = [files.certificate, files.key, *([files.client_ca] if files.client_ca else [])]
        self.source = WatchedFiles(files.section, tuple(paths), self.load)

    def load(self) -> None:
        """Read the files and use them from the next connection on. Raises `BadFile`, and changes nothing
        then."""
        files = self._files
        chain = read(f"{files.section}.certificate", files.certificate)
        key = read(f"{files.section}.key", files.key)
        authorities = read(f"{files.section}.client_ca", files.client_ca) if files.client_ca else None
        self._check(chain, key, authorities)
        context = self._made()
        if self._context is not None:
            self._changed_at = int(time.time())
        self._context, self._pems = context, (key, chain, authorities)

    def _check(self, chain: bytes, key: bytes, authorities: bytes | None) -> None:
        files = self._files
        try:
            certificates = x509.load_pem_x509_certificates(chain)
        except ValueError:
            raise BadFile(
                f"{files.section}.certificate", files.certificate, "holds no certificate as PEM"
            ) from None
        try:
            private = load_pem_private_key(key, None)
        except TypeError:
            raise BadFile(f"{files.section}.key", files.key, "has a passphrase; write it without") from None
        except Exception:  # noqa: BLE001 (cryptography has many, and their words could quote the file)
            raise BadFile(f"{files.section}.key", files.key, "holds no private key as PEM") from None
        form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        if private.public_key().public_bytes(*form) != certificates[0].public_key().public_bytes(*form):
            problem = f"does not belong to the certificate in {files.certificate}"
            raise BadFile(f"{files.section}.key", files.key, problem)
        if authorities is not None:
            try:
                x509.load_pem_x509_certificates(authorities)
            except ValueError:
                setting, path = f"{files.section}.client_ca", files.client_ca
                raise BadFile(setting, str(path), "holds no certificate as PEM") from None

    def _made(self) -> ssl.SSLContext:
        files = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A ticket would let a caller in whose CA has been taken away since.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(files.certificate, files.key, password=lambda: "")
            if files.client_ca:
                context.load_verify_locations(files.client_ca)
                context.verify_mode = ssl.CERT_REQUIRED if files.required else ssl.CERT_OPTIONAL
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            problem = f"can't be used: {getattr(error, 'reason', None) or 'its form is wrong'}"
            raise BadFile(files.section, files.certificate, problem) from None
        return context

    def context(self) -> ssl.SSLContext:
        """A context for a listener of asyncio. Each connection takes the files as they are then."""
        # A context can't forget a CA, so each load makes one, which takes the place of this one during the
        # handshake.
        first = self._made()
        first.sni_callback = self._swap
        return first

    def _swap(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: object, _first: ssl.SSLContext
    ) -> int | None:
        """Returns the alert that ends the handshake, None if it goes on."""
        # Without tickets, TLS 1.2 resumes sessions that the first context keeps, and Python can't turn that
        # off. Such a session skips the certificate, whose CA may have been taken away since. The alert makes
        # both sides forget the session, so that the caller's next connection shows its certificate.
        session = connection.session if connection.session_reused else None
        if session is not None and session.time <= self._changed_at:
            return ssl.ALERT_DESCRIPTION_HANDSHAKE_FAILURE
        assert self._context is not None
        connection.context = self._context
        return None

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials for a gRPC server. Each connection takes the files as they are then."""
        configuration = self._configuration()
        credentials: grpc.ServerCredentials = grpc.dynamic_ssl_server_credentials(
            configuration,
            self._changed,  # type: ignore[arg-type]  # None says that nothing has changed
            require_client_authentication=self._files.required,
        )
        return credentials

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        assert self._pems is not None, "load comes first"
        self._given = self._pems
        key, chain, authorities = self._given
        return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=authorities)

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """What is new since gRPC asked last, which it does for each connection, in threads of its own."""
        return None if self._pems is self._given else self._configuration()
