"""Keys behind a real https URL."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from relay.trust.keys import KeysAddress, UrlKeys, fetch
from tests.trust.authority import Authority, Signer

SIGNER = Signer()


class Handler(BaseHTTPRequestHandler):
    """Answers whoever shows the token."""

    def do_GET(self) -> None:
        shown = self.headers.get("authorization")
        status = 302 if self.path == "/elsewhere" else 200 if shown == "Bearer of-the-pod" else 401
        content = SIGNER.jwks().encode() if status == 200 else b""
        self.send_response(status)
        self.send_header("location", "/jwks")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, Path]]:
    """The URL, the CA, and a file with the token."""
    directory = tmp_path_factory.mktemp("jwks")
    authority = Authority(directory)
    pair = authority.issue("issuer")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    token = directory / "token"
    token.write_text("of-the-pod\n")
    yield f"https://127.0.0.1:{server.server_port}", authority.certificate, token
    server.shutdown()
    thread.join()
    server.server_close()


async def test_keys_come_with_the_token_and_under_the_ca(
    served: tuple[str, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    url, ca, token = served
    reports: list[bool] = []
    address = KeysAddress(f"{url}/jwks", str(ca), str(token))
    source = UrlKeys("jwks", address, lambda _, good: reports.append(good))
    assert await source.find(SIGNER.kid) is not None
    assert reports == [True]
    assert str(token) not in repr(address)


def test_other_cas_no_token_and_other_addresses_are_refused(
    served: tuple[str, Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    url, ca, token = served
    other = str(Authority(tmp_path).certificate)
    for address, problem in (
        (KeysAddress(f"{url}/jwks", other, str(token)), "CERTIFICATE_VERIFY_FAILED"),
        (KeysAddress(f"{url}/jwks", str(ca)), "401"),
        (KeysAddress(f"{url}/elsewhere", str(ca), str(token)), "302"),
        (KeysAddress(f"{url}/jwks", str(tmp_path / "gone")), "No such file"),
    ):
        with pytest.raises(OSError, match=problem):
            fetch(address)
