"""A CA made on the spot, its certificates, and an issuer of JWTs."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

LOOPBACK = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


@dataclass(frozen=True)
class Issued:
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes
    serial: int


class Authority:
    """A CA that lives as long as the demo."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("demo CA")
        usage = dict.fromkeys(
            (
                *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
                *("key_agreement", "encipher_only", "decipher_only"),
            ),
            False,
        )
        made = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, SHA256())
        )
        self.certificate = made.public_bytes(Encoding.PEM)

    def issue(self, *names: x509.GeneralName) -> Issued:
        """A certificate with these alternative names, good for an hour."""
        key = ec.generate_private_key(ec.SECP256R1())
        from_ca = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        made = (
            self._builder(_named("demo"), key)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(from_ca, critical=False)
            .sign(self._key, SHA256())
        )
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return Issued(made.public_bytes(Encoding.PEM), private, made.serial_number)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(minutes=5),
            not_valid_after=now + timedelta(hours=1),
        )


class Issuer:
    """The issuer whose JWTs people send."""

    NAME, AUDIENCE = "https://login.shop.example", "relay"

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())

    def jwks(self) -> bytes:
        """Its public key, as the relay reads it."""
        public = jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return json.dumps({"keys": [{**public, "kid": "1", "alg": "ES256"}]}).encode()

    def token(self, subject: str) -> str:
        """A JWT that ends in ten minutes."""
        until = datetime.now(UTC) + timedelta(minutes=10)
        claims = {"iss": self.NAME, "aud": self.AUDIENCE, "sub": subject, "exp": until}
        return jwt.encode(claims, self._key, algorithm="ES256", headers={"kid": "1"})


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
