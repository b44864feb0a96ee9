"""Files are taken over when they change, and bad ones leave those before."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from relay.trust.certificates import CertificateFiles, ListenerCertificate
from relay.trust.files import BadFile, Watch, WatchedFiles, read
from tests.trust.authority import Authority


def test_a_change_is_loaded_once_and_a_bad_one_left(tmp_path: Path) -> None:
    file, reports, held = tmp_path / "file", list[tuple[str, bool]](), list[bytes]()

    def load() -> None:
        content = read("some.setting", file)
        if content == b"bad":
            raise BadFile("some.setting", file, "is bad")
        if content == b"worse":
            raise RuntimeError
        held.append(content)

    watch = Watch(lambda setting, taken: reports.append((setting, taken)))
    with pytest.raises(BadFile, match=r"some.setting: .* can't be read: No such file"):
        watch.add(WatchedFiles("some.setting", (file,), load))
    for content in (b"one", b"bad", b"worse", b"three"):
        file.write_bytes(content)
        if content == b"one":
            watch.add(WatchedFiles("some.setting", (file,), load))
        watch.look()
        watch.look()
    file.unlink()
    watch.look()
    file.write_bytes(b"three")
    watch.look()
    assert held == [b"one", b"three", b"three"]
    assert [taken for _, taken in reports] == [False, False, True, False, True]


def test_what_is_not_a_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    """A pipe to which nobody writes would stop the event loop; so would one that takes a file's place."""
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for path in (pipe, Path("/dev/zero"), tmp_path):
            with pytest.raises(BadFile, match=f"^some.setting: {path} is not a regular file"):
                read("some.setting", path)
        with pytest.raises(BadFile, match="can't be read"):
            read("some.setting", tmp_path / "socket")
    reports: list[bool] = []

    def load() -> None:
        read("some.setting", file)

    watch = Watch(lambda _, taken: reports.append(taken))
    file.write_bytes(b"one")
    watch.add(WatchedFiles("some.setting", (file,), load))
    pipe.replace(file)
    watch.look()
    assert reports == [False]
    open_files = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(BadFile):
        read("some.setting", tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files


def test_what_does_not_fit_together_names_its_setting(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, two = authority.issue("one"), authority.issue("two")
    empty = tmp_path / "empty"
    empty.write_text("x")
    for files, problem in (
        (CertificateFiles("grpc.tls", one.certificate, two.key), r"^grpc.tls.key: .* does not belong"),
        (CertificateFiles("grpc.tls", empty, two.key), r"^grpc.tls.certificate: .* holds no certificate"),
        (CertificateFiles("grpc.tls", one.certificate, empty), r"^grpc.tls.key: .* holds no private key"),
        (
            CertificateFiles("grpc.tls", one.certificate, one.key, empty, required=True),
            r"^grpc.tls.client_ca: .* holds no certificate",
        ),
        (CertificateFiles("grpc.tls", tmp_path, one.key), r"^grpc.tls.certificate: .* is not a regular"),
    ):
        with pytest.raises(BadFile, match=problem):
            ListenerCertificate(files).load()


async def test_a_session_from_before_a_change_is_not_resumed(
    tmp_path: Path,
) -> None:
    """TLS 1.2 keeps sessions at the listener, and resumes them without the caller's certificate."""
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    own, callers = authority.issue("own"), tmp_path / "callers.crt"
    mine = authority.issue("mine")
    callers.write_bytes(authority.certificate.read_bytes())
    listener = ListenerCertificate(CertificateFiles("api.tls", own.certificate, own.key, callers, True))
    listener.load()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"1" if writer.get_extra_info("ssl_object").session_reused else b"0")
        writer.close()

    context = ssl.create_default_context(cafile=authority.certificate)
    context.load_cert_chain(mine.certificate, mine.key)
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    def call(
        address: tuple[str, int], session: ssl.SSLSession | None = None
    ) -> tuple[bytes, ssl.SSLSession | None]:
        with (
            socket.create_connection(address, timeout=30.0) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as connection,
        ):
            return connection.recv(1), connection.session

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=listener.context()) as server:
        address = server.sockets[0].getsockname()
        _, session = await asyncio.to_thread(call, address)
        assert (await asyncio.to_thread(call, address, session))[0] == b"1"
        callers.write_bytes(other.certificate.read_bytes())
        listener.load()
        with pytest.raises((ssl.SSLError, ConnectionError)):  # an alert, or the end of the connection
            await asyncio.to_thread(call, address, session)
        callers.write_bytes(authority.certificate.read_bytes())
        listener.load()
        with suppress(OSError):  # the refused session is gone at the latest now
            await asyncio.to_thread(call, address, session)
        assert (await asyncio.to_thread(call, address, session))[0] == b"0"
