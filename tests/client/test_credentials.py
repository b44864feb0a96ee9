"""What a client shows, where it gets it from, and that it shows it nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.client import Credentials, InvalidArgument, RelayClient, SyncRelayClient
from relay.client.credentials import LOOK_INTERVAL, Bearer


@pytest.mark.parametrize(
    ("target", "shown", "field"),
    [
        ("relay.shop:7451", Credentials(token="secret"), "ca"),
        ("10.0.0.1:7451", Credentials(token_file="t"), "ca"),
        ("127.0.0.1:7451", Credentials(token="secret", token_file="t"), "token"),
        ("127.0.0.1:7451", Credentials(ca="c", certificate="c"), "key"),
        ("127.0.0.1:7451", Credentials(certificate="c", key="k"), "ca"),
    ],
)
def test_what_does_not_fit_is_refused(target: str, shown: Credentials, field: str) -> None:
    for client in (RelayClient, SyncRelayClient):
        with pytest.raises(InvalidArgument) as caught:
            client(target, credentials=shown)
        assert caught.value.field == field
        assert "secret" not in str(caught.value)
    assert "secret" not in repr(shown)


def test_a_token_may_go_in_the_clear_on_this_machine() -> None:
    for target in ("127.0.0.1:1", "[::1]:1", "localhost:1", "unix:/run/relay.sock", "ipv4:127.0.0.1:1"):
        Credentials(token="secret").check(target)


def test_the_environment_is_asked_where_no_argument_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAY_TOKEN_FILE", "/run/token")
    assert Credentials.from_environment() == Credentials(token_file="/run/token")
    with pytest.raises(InvalidArgument, match="ca must be given"):
        SyncRelayClient("relay.shop:7451")
    SyncRelayClient("relay.shop:7451", credentials=Credentials())


def test_a_token_file_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("relay.client.credentials.time.monotonic", lambda: now[0])
    file = tmp_path / "token"
    bearer = Bearer(Credentials(token_file=str(file)))
    with pytest.raises(InvalidArgument, match=r"token_file .* can't be read: No such file"):
        bearer.metadata()
    for content in ("one\n", "other\n"):
        file.write_text(content)
        now[0] += LOOK_INTERVAL
        assert bearer.metadata() == (("authorization", f"Bearer {content.strip()}"),)
    for change in (lambda: file.write_text(""), file.unlink):
        change()
        now[0] += LOOK_INTERVAL
        assert bearer.metadata() == (("authorization", "Bearer other"),)
