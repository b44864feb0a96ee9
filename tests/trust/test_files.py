"""Files are taken over when they change, and bad ones leave those before."""

from __future__ import annotations

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
        (CertificateFiles("grpc.tls", tmp_path, one.key), r"^grpc.tls.certificate: .* can't be read"),
    ):
        with pytest.raises(BadFile, match=problem):
            ListenerCertificate(files).load()
