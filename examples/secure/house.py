"""The files of the demo, as they would lie in a pod: TLS, policy, tokens and keyring."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509

from examples.demo.processes import free_port
from examples.secure.authority import LOOPBACK, Authority, Issued, Issuer
from relay.client import Credentials
from relay.trust import tokens

TOPIC = "reminders"
SPIFFE = "spiffe://shop.example/ns/shop/sa/reminders"

POLICY = """\
rules:
  - {name: shop, principals: ["token:web"], topics: [reminders], verbs: [schedule]}
  - {name: handlers, principals: ["spiffe://shop.example/ns/shop/*"], topics: [reminders], verbs: [deliver]}
  - {name: staff, principals: ["jwt:staff:*"], topics: ["*"], verbs: [read, operate]}
  - {name: privacy, principals: ["jwt:staff:otto"], topics: [reminders], verbs: [admin]}
"""


class Mounted:
    """A directory that changes as a whole, as Kubernetes swaps a mounted Secret: files are links through
    `..data`, so nobody ever sees a new certificate beside an old key."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._swaps = 0
        directory.mkdir()

    def put(self, files: Mapping[str, bytes]) -> None:
        """Replace all files at once."""
        self._swaps += 1
        fresh = self._directory / f"..{self._swaps}"
        fresh.mkdir()
        for name, content in files.items():
            (fresh / name).write_bytes(content)
            link = self._directory / name
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}")
        (self._directory / "..next").symlink_to(fresh.name)
        (self._directory / "..next").replace(self._directory / "..data")


class House:
    """Everything that the relay and its callers are given."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authority = Authority()
        self._keys: dict[str, str] = {}
        self._tls = Mounted(directory / "tls")
        self._keyring = Mounted(directory / "keyring")
        self.ca = self._write("ca.crt", self._authority.certificate)
        self.api = f"127.0.0.1:{free_port()}"
        self.web = tokens.new()
        self._write("tokens", tokens.line("web", self.web).encode())
        issuer = Issuer()
        self._write("staff.jwks", issuer.jwks())
        self.anna, self.otto = issuer.token("anna"), issuer.token("otto")
        self._write("policy.yaml", POLICY.encode())
        self.serial = self.new_certificate()

    def settings(self) -> dict[str, str]:
        """What the relay is started with."""
        found = {
            "RELAY_API__ENABLED": "true",
            "RELAY_API__LISTEN": self.api,
            "RELAY_API__TLS__CLIENT_CERTIFICATES": "optional",
            "RELAY_GRPC__TLS__CLIENT_CERTIFICATES": "required",
            "RELAY_AUTHENTICATION__TOKENS_FILE": str(self._directory / "tokens"),
            "RELAY_AUTHENTICATION__JWT": json.dumps([self._staff()]),
            "RELAY_POLICY_FILE": str(self._directory / "policy.yaml"),
            "RELAY_SEALING__KEYRING": str(self._directory / "keyring" / "keyring.yaml"),
            f"RELAY_TOPICS__{TOPIC}__SEALING": "true",
        }
        for listener in ("GRPC", "API"):
            found[f"RELAY_{listener}__TLS__CERTIFICATE"] = str(self._directory / "tls" / "tls.crt")
            found[f"RELAY_{listener}__TLS__KEY"] = str(self._directory / "tls" / "tls.key")
            found[f"RELAY_{listener}__TLS__CLIENT_CA"] = str(self.ca)
        return found

    def credentials(self) -> Credentials:
        """What the application shows: a certificate with its SPIFFE id."""
        own = self._authority.issue(x509.UniformResourceIdentifier(SPIFFE))
        certificate = self._write("reminders.crt", own.certificate)
        key = self._write("reminders.key", own.key)
        return Credentials(ca=str(self.ca), certificate=str(certificate), key=str(key))

    def new_certificate(self) -> int:
        """Give the relay another certificate of the CA; returns its serial number."""
        issued: Issued = self._authority.issue(LOOPBACK)
        self._tls.put({"tls.crt": issued.certificate, "tls.key": issued.key})
        return issued.serial

    def keyring(self, *opens: str, write: str) -> None:
        """Let these keys open, and one of them seal. A new one is made, one that is left out is gone."""
        for name in opens:
            self._keys.setdefault(name, base64.b64encode(secrets.token_bytes(32)).decode())
        keys = {name: {"base64": self._keys[name]} for name in opens}
        self._keyring.put({"keyring.yaml": json.dumps({"write": write, "keys": keys}).encode()})

    def _staff(self) -> dict[str, str]:
        jwks = str(self._directory / "staff.jwks")
        return {"name": "staff", "issuer": Issuer.NAME, "audience": Issuer.AUDIENCE, "jwks": jwks}

    def _write(self, name: str, content: bytes) -> Path:
        file = self._directory / name
        file.write_bytes(content)
        return file
