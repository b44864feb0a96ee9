"""Certificates of a test's own, made by the openssl binary."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

OPENSSL = shutil.which("openssl")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """A CA in a directory."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self.ca = self._pair(name)
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", self.ca.key, "-out", self.ca.certificate, "-days", "2", "-subj", f"/CN={name}"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),  # Python 3.13 wants to see it
        )

    def issue(self, name: str, hosts: str = "IP:127.0.0.1", *, expired: bool = False) -> Pair:
        """A certificate for `hosts`, as openssl writes them: `DNS:cache,IP:127.0.0.1`."""
        pair, request = self._pair(name), self._directory / f"{name}.csr"
        extensions = self._directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={hosts}\nauthorityKeyIdentifier=keyid\n")
        _openssl(
            *("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", pair.key, "-out", request, "-subj", f"/CN={name}"),
        )
        days = "-1" if expired else "2"  # from now to yesterday, which openssl signs without a word
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.ca.certificate, "-CAkey", self.ca.key),
            *("-CAcreateserial", "-days", days, "-extfile", extensions, "-out", pair.certificate),
        )
        return pair

    def _pair(self, name: str) -> Pair:
        return Pair(self._directory / f"{name}.crt", self._directory / f"{name}.key")


def _openssl(*arguments: object) -> None:
    subprocess.run([str(OPENSSL), *map(str, arguments)], check=True, capture_output=True)
