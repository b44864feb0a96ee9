"""Which listeners need what, and what the settings say if it is missing."""

from __future__ import annotations

import pytest

from relay.settings import SettingsError, load

BEYOND = {"RELAY_GRPC__LISTEN": "0.0.0.0:7451"}
PAIR = {"RELAY_GRPC__TLS__CERTIFICATE": "a.crt", "RELAY_GRPC__TLS__KEY": "a.key"}
ASKED = {"RELAY_GRPC__TLS__CLIENT_CA": "ca.crt", "RELAY_GRPC__TLS__CLIENT_CERTIFICATES": "required"}
JWT = '[{"name": "cluster", "issuer": "i", "audience": "a", "jwks": "%s"}]'  # the keys' place


@pytest.mark.parametrize(
    "environ",
    [
        {"RELAY_GRPC__LISTEN": "localhost:7451"},
        {"RELAY_GRPC__LISTEN": "[::1]:7451"},
        {"RELAY_GRPC__LISTEN": "unix:/run/relay.sock"},
        {"RELAY_HTTP__LISTEN": "0.0.0.0:7452"},
        {**BEYOND, "RELAY_GRPC__INSECURE": "true"},
        {**BEYOND, **PAIR, **ASKED},
        {**BEYOND, **PAIR, "RELAY_AUTHENTICATION__TOKENS_FILE": "tokens"},
        {**BEYOND, **PAIR, "RELAY_AUTHENTICATION__JWT": JWT % "https://issuer/jwks"},
        {"RELAY_API__LISTEN": "0.0.0.0:7453", "RELAY_API__ENABLED": "off"},
    ],
)
def test_these_may_start(environ: dict[str, str]) -> None:
    load(environ=environ)


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        (BEYOND, r"^grpc.tls.certificate: must name a file, .* or set grpc.insecure: true"),
        ({**BEYOND, **PAIR}, r"^grpc.tls.client_certificates: must be required, .* grpc.insecure: true"),
        ({**BEYOND, "RELAY_AUTHENTICATION__TOKENS_FILE": "t"}, r"^grpc.tls.certificate: must name a file"),
        ({"RELAY_GRPC__LISTEN": "relay:7451"}, r"grpc.insecure"),
        ({"RELAY_API__LISTEN": "0.0.0.0:7453"}, r"^api.tls.certificate: .* or set api.insecure: true"),
        ({"RELAY_GRPC__TLS__KEY": "a"}, r"^grpc.tls.certificate: must name"),
        ({"RELAY_GRPC__TLS__CERTIFICATE": "a"}, r"^grpc.tls.key: must name"),
        ({**PAIR, "RELAY_GRPC__TLS__CLIENT_CERTIFICATES": "required"}, r"^grpc.tls.client_ca: must name"),
        ({**PAIR, "RELAY_GRPC__TLS__CLIENT_CA": "a"}, r"^grpc.tls.client_ca: has no effect"),
        ({"RELAY_GRPC__TLS__CLIENT_CERTIFICATES": "optional"}, r"gRPC for Python can't ask"),
        ({"RELAY_AUTHENTICATION__JWT": JWT % "http://issuer/jwks"}, r"^authentication.jwt.0.jwks: .* https"),
        ({"RELAY_AUTHENTICATION__JWT": JWT % "https://u:p@issuer"}, r"jwks: must hold no credentials"),
        ({"RELAY_AUTHENTICATION__JWT": "[{}]"}, r"^authentication.jwt.0.name: must be 1 to 64"),
        ({"RELAY_AUTHENTICATION__JWT": "nonsense"}, r"^authentication.jwt: must be a list"),
        ({"RELAY_DEFAULTS__DELIVERY__TLS__KEY": "a"}, r"^defaults.delivery.tls.certificate: must name"),
    ],
)
def test_these_are_refused(environ: dict[str, str], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        load(environ=environ)
