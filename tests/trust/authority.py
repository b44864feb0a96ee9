"""Certificates and JWTs of a test's own."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

Names = x509.GeneralName
LOOPBACK = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """A CA in a directory."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            _dated(x509.CertificateBuilder().subject_name(self._name), self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, SHA256())
        )
        self.certificate = directory / f"{name}.crt"
        self.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))

    def issue(self, name: str, *names: Names, subject: str | None = None) -> Pair:
        """A certificate with these alternative names, loopback if there are none."""
        key = ec.generate_private_key(ec.SECP256R1())
        whose = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name if subject is None else subject)])
        builder = _dated(x509.CertificateBuilder().subject_name(whose), self._name, key)
        certificate = (
            builder.add_extension(x509.SubjectAlternativeName(names or (LOOPBACK,)), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, SHA256())
        )
        pair = Pair(self.directory / f"{name}.crt", self.directory / f"{name}.key")
        pair.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
        pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return pair


def _dated(
    builder: x509.CertificateBuilder, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        builder.issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
    )


class Signer:
    """An issuer of JWTs with one key."""

    ISSUER, AUDIENCE = "https://issuer.example", "relay"

    def __init__(self, kid: str = "one") -> None:
        self.kid = kid
        self.key = ec.generate_private_key(ec.SECP256R1())

    def jwks(self, *others: Signer) -> str:
        """Its public key, and those of others, as a JWKS."""
        return json.dumps({"keys": [each.public for each in (self, *others)]})

    @property
    def public(self) -> dict[str, Any]:
        known: dict[str, Any] = jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {**known, "kid": self.kid, "alg": "ES256", "use": "sig"}

    def token(self, *, lasts: float = 300.0, kid: str | None = None, **claims: Any) -> str:
        """A token for `relay` that ends in so many seconds; a claim that is None is left out."""
        now = datetime.now(UTC)
        whole = {
            "iss": self.ISSUER,
            "aud": self.AUDIENCE,
            "sub": "system:serviceaccount:shop:orders",
            "exp": now + timedelta(seconds=lasts),
            **claims,
        }
        payload = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode(payload, self.key, algorithm="ES256", headers={"kid": kid or self.kid})
