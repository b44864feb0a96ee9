"""The name of a caller according to its verified certificate."""

from __future__ import annotations

import re
from functools import lru_cache

from cryptography import x509

from relay.core.errors import Unauthenticated
from relay.core.trust.principals import Principal

MOST_LETTERS = 512
"""The most letters of a name. Names stand in logs, metrics and journals."""

_SPIFFE = re.compile(r"spiffe://[a-z0-9._-]+(/[A-Za-z0-9._-]+)*", re.ASCII)
_DNS = re.compile(r"[a-z0-9_*-]+(\.[a-z0-9_-]+)*", re.ASCII)


@lru_cache(maxsize=1024)
def of_certificate(certificate: bytes) -> Principal:
    """The caller whose certificate (PEM or DER) TLS has verified. Raises `Unauthenticated` if no name in it
    can be used.

    The kinds of names are told apart by the certificate's structure: a DNS name that looks like a SPIFFE URI
    is not one.
    """
    try:
        read = (
            x509.load_pem_x509_certificate
            if certificate.startswith(b"-----")
            else x509.load_der_x509_certificate
        )
        parsed = read(certificate)
        names = _alternatives(parsed)
        subject = parsed.subject.rfc4514_string()
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        raise Unauthenticated("the client certificate can't be read") from None
    uris = [] if names is None else names.get_values_for_type(x509.UniformResourceIdentifier)
    spiffe = [uri for uri in uris if uri.startswith("spiffe://")]
    if spiffe:
        if len(uris) > 1 or not _SPIFFE.fullmatch(spiffe[0]) or len(spiffe[0]) > MOST_LETTERS:
            raise Unauthenticated(
                "the client certificate must have one URI if it has a SPIFFE ID, a valid one"
            )
        return Principal(spiffe[0])
    for host in [] if names is None else names.get_values_for_type(x509.DNSName):
        if _DNS.fullmatch(host.lower()) and len(host) <= MOST_LETTERS:
            return Principal(f"dns:{host.lower()}")
    if subject and is_plain(subject):
        return Principal(f"subject:{subject}")
    raise Unauthenticated("the client certificate has no name: no SPIFFE URI, no DNS name, no subject")


def _alternatives(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def is_plain(name: str) -> bool:
    """Whether a name may stand in a log: printable, and not too long."""
    return 0 < len(name) <= MOST_LETTERS and name.isprintable()
