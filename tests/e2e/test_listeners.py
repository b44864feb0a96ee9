"""Whole relays behind TLS: who is let in, and files that change while timers flow."""

from __future__ import annotations

import json
import socket
import ssl
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509

from relay.client import CallError, Credentials, RelayClient, SyncRelayClient
from relay.trust import tokens
from tests.trust.authority import Authority, Pair, Signer
from tests.worlds.relay.processes import Relay, command, free_address, put_file
from tests.worlds.relay.stage import Stage, staged
from tests.worlds.waiting import PATIENCE, eventually, until

SPIFFE = "spiffe://shop.example/orders"


@dataclass
class House:
    """A relay that strangers can reach, and all that its callers have."""

    stage: Stage
    relay: Relay
    authority: Authority
    signer: Signer
    orders: Pair
    token: str
    directory: Path

    @property
    def ca(self) -> str:
        return str(self.authority.certificate)

    def client(self, **shown: Any) -> SyncRelayClient:
        return SyncRelayClient(self.relay.target, timeout=30.0, credentials=Credentials(ca=self.ca, **shown))

    def api(self, authorization: str = "", pair: Pair | None = None) -> tuple[int, dict[str, str], Any]:
        """Ask the API for its topics."""
        context = ssl.create_default_context(cafile=self.ca)
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        headers = {"authorization": authorization} if authorization else {}
        request = urllib.request.Request(f"https://{self.relay.api}/v1/topics", headers=headers)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(request, timeout=60.0) as answer:
                return answer.status, dict(answer.headers), json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), json.load(error)


def begin(relay: Relay) -> Relay:
    """Start a relay whose health can't be asked in the clear."""
    relay.spawn()
    serving = eventually(lambda: relay._serving(0), f"it serves: {relay.output()[-2000:]}")
    relay.target, relay.http, relay.api = (
        serving[name].replace("0.0.0.0", "127.0.0.1") for name in ("grpc", "http", "api")
    )
    return relay


def tls(section: str, pair: Pair, **more: str) -> dict[str, str]:
    found = {"certificate": str(pair.certificate), "key": str(pair.key), **more}
    return {f"RELAY_{section}__TLS__{name.upper()}": value for name, value in found.items()}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    directory = tmp_path_factory.mktemp("trust")
    authority, signer, token = Authority(directory), Signer(), tokens.new()
    orders = authority.issue("orders", x509.UniformResourceIdentifier(SPIFFE))
    pair = authority.issue("relay")
    (directory / "tokens").write_text(tokens.line("orders", token))
    (directory / "jwks.json").write_text(signer.jwks())
    issuer = {"name": "cluster", "issuer": Signer.ISSUER, "audience": Signer.AUDIENCE}
    with staged(Stage) as stage:
        settings = {
            **tls("GRPC", pair),
            **tls("HTTP", pair),
            **tls("API", pair, client_ca=str(authority.certificate), client_certificates="optional"),
            "RELAY_GRPC__LISTEN": free_address().replace("127.0.0.1", "0.0.0.0"),
            "RELAY_API__LISTEN": free_address().replace("127.0.0.1", "0.0.0.0"),
            "RELAY_AUTHENTICATION__TOKENS_FILE": str(directory / "tokens"),
            "RELAY_AUTHENTICATION__JWT": json.dumps([{**issuer, "jwks": str(directory / "jwks.json")}]),
        }
        relay = begin(stage.relay(settings=settings, start=False))
        yield House(stage, relay, authority, signer, orders, token, directory)


def test_who_shows_a_token_is_served(house: House, tmp_path: Path) -> None:
    for token in (house.token, house.signer.token()):
        with house.client(token=token) as client:
            client.schedule("orders", b"", delay=3600)
            client.topics.get("orders")
    file = tmp_path / "token"
    file.write_text(f"{house.token}\n")
    shown = {"RELAY_TARGET": house.relay.target, "RELAY_CA": house.ca, "RELAY_TOKEN_FILE": str(file)}
    assert command("topics", settings=shown).code == 0
    assert command("healthcheck", settings={**shown, "RELAY_TOKEN_FILE": ""}).out == "SERVING\n"


@pytest.mark.parametrize(
    ("shown", "problem"),
    [
        ("", "is missing"),
        ("relay_unknown", "not one that this relay takes"),
        ("expired", "has expired"),
        ("audience", "another audience"),
    ],
)
def test_who_proves_nothing_is_refused(house: House, shown: str, problem: str) -> None:
    made = {
        "expired": house.signer.token(lasts=-60),
        "audience": house.signer.token(aud="other"),
    }
    token = made.get(shown, shown)
    with house.client(token=token) as client:
        calls: list[Callable[[], object]] = [
            lambda: client.schedule("orders", b"", delay=3600),
            lambda: client.topics.get("no-such-topic"),
        ]
        for call in calls:
            with pytest.raises(CallError, match=problem) as caught:
                call()
            assert caught.value.code is grpc.StatusCode.UNAUTHENTICATED
    status, headers, told = house.api(f"Bearer {token}" if token else "")
    assert (status, headers["www-authenticate"]) == (401, "Bearer")
    assert problem in told["detail"]
    assert "exception" not in house.relay.output()


async def test_streams_are_refused_too(house: House) -> None:
    client = RelayClient(house.relay.target, credentials=Credentials(ca=house.ca))

    @client.on("orders")
    async def handle(_: object) -> None: ...

    with pytest.raises(CallError, match="is missing") as caught:
        async with client:
            await client.wait_ready(60.0)
    assert caught.value.code is grpc.StatusCode.UNAUTHENTICATED


def test_the_api_takes_certificates_and_tokens(house: House, tmp_path: Path) -> None:
    for shown in ({"pair": house.orders}, {"authorization": f"bearer {house.token}"}):
        assert house.api(**shown)[0] == 200
    stranger = Authority(tmp_path).issue("orders", x509.UniformResourceIdentifier(SPIFFE))
    with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
        house.api(pair=stranger)


def test_the_probes_speak_tls_and_ask_for_nothing(house: House) -> None:
    context = ssl.create_default_context(cafile=house.ca)
    with urllib.request.urlopen(
        f"https://{house.relay.http}/metrics", context=context, timeout=60.0
    ) as answer:
        assert b"relay_calls_unauthenticated" in answer.read()


def test_old_tls_is_refused(house: House) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(house.ca)
    with warnings.catch_warnings(action="ignore"):  # Python warns of versions that nobody should speak
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    for address in (house.relay.target, house.relay.http):
        host, _, port = address.rpartition(":")
        assert ssl.get_server_certificate((host, int(port)))
        with (
            socket.create_connection((host, int(port)), 60.0) as plain,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            context.wrap_socket(plain, server_hostname="127.0.0.1")


def test_a_name_that_is_taken_out_of_the_file_is_refused(house: House) -> None:
    file = house.directory / "tokens"
    listed, fresh = file.read_text(), tokens.new()
    try:
        put_file(file, tokens.line("billing", fresh))

        def is_known(token: str) -> bool:
            try:
                with house.client(token=token) as client:
                    list(client.topics.list())
            except CallError as error:
                if error.code is not grpc.StatusCode.UNAUTHENTICATED:
                    raise
                return False
            return True

        eventually(lambda: not is_known(house.token), "the old token is refused")
        assert is_known(fresh)
        put_file(file, "no such line\n")
        eventually(lambda: house.relay.said("changed files can't be used"), "it is said")
        assert is_known(fresh)
    finally:
        put_file(file, listed)
        eventually(lambda: is_known(house.token), "the token is known again")


# ------------------------------------------------------------------- rotation


class Secret:
    """A directory as Kubernetes mounts a Secret: files are links through `..data`, which is swapped."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._number = 0

    def swap(self, pair: Pair, ca: Path) -> None:
        self._number += 1
        where = self.directory / f"..{self._number}"
        where.mkdir()
        for name, file in (("tls.crt", pair.certificate), ("tls.key", pair.key), ("ca.crt", ca)):
            (where / name).write_bytes(file.read_bytes())
            if not (self.directory / name).is_symlink():
                (self.directory / name).symlink_to(f"..data/{name}")
        (self.directory / "..new").symlink_to(where.name)
        (self.directory / "..new").replace(self.directory / "..data")


def files(secret: Secret) -> Pair:
    return Pair(secret.directory / "tls.crt", secret.directory / "tls.key")


@pytest.mark.slow
@pytest.mark.usefixtures("one_try")
async def test_a_rotation_drops_no_stream_and_no_call(stage: Stage, tmp_path: Path) -> None:
    """Certificate and CA are swapped while a stream delivers: it goes on, new callers need the new CA, and
    bad files change nothing."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "secret").mkdir()
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    secret = Secret(tmp_path / "secret")
    secret.swap(old.issue("relay"), old.certificate)
    asked = {"client_ca": str(secret.directory / "ca.crt"), "client_certificates": "required"}
    settings = {**tls("GRPC", files(secret), **asked), **tls("API", files(secret), **asked)}
    relay = begin(stage.relay(settings=settings, start=False))

    def of(authority: Authority) -> Credentials:
        pair = authority.issue("caller", x509.DNSName("orders.shop"))
        ca = str(authority.certificate)
        return Credentials(ca=ca, certificate=str(pair.certificate), key=str(pair.key))

    first, second = of(old), of(new)

    def is_let_in(credentials: Credentials) -> bool:
        try:
            with SyncRelayClient(relay.target, timeout=1.0, credentials=credentials) as client:
                list(client.topics.list())
        except CallError:
            return False
        return True

    def api_lets_in(credentials: Credentials) -> bool:
        context = ssl.create_default_context(cafile=credentials.ca)
        context.load_cert_chain(credentials.certificate, credentials.key)
        try:
            urllib.request.urlopen(f"https://{relay.api}/v1/topics", context=context, timeout=60.0).close()
        except OSError:
            return False
        return True

    def lets_in(credentials: Credentials) -> list[bool]:
        return [is_let_in(credentials), api_lets_in(credentials)]

    eventually(lambda: lets_in(first) == [True, True], "both let it in")
    assert lets_in(second) == [False, False]
    assert not is_let_in(Credentials(ca=first.ca))
    client = RelayClient(relay.target, timeout=PATIENCE, credentials=first)
    seen: list[str] = []

    @client.on("orders")
    async def handle(delivery: Any) -> None:
        seen.append(delivery.timer_id)

    async with client:
        await client.wait_ready(60.0)
        await client.schedule("orders", b"", delay=0, timer_id="before")
        await until(lambda: "before" in seen)
        secret.swap(new.issue("relay"), new.certificate)
        await until(lambda: relay.said("changed files are in use") == 2)
        eventually(lambda: lets_in(second) == [True, True], "both let it in")
        assert lets_in(first) == [False, False]
        files(secret).key.write_text("half")
        await until(lambda: relay.said("changed files can't be used") == 2)
        eventually(lambda: lets_in(second) == [True, True], "both let it in")
        await client.schedule("orders", b"", delay=0, timer_id="after")
        await until(lambda: "after" in seen)
    assert seen == ["before", "after"]
    text = relay.output()
    assert "half" not in text
    assert "grpc.tls.key" in text


def test_it_refuses_to_start(tmp_path: Path) -> None:
    beyond = command("serve", settings={"RELAY_GRPC__LISTEN": "0.0.0.0:0"})
    assert beyond.code == 2
    assert "grpc.insecure: true" in beyond.err
    gone = str(tmp_path / "gone.crt")
    settings = {"RELAY_GRPC__TLS__CERTIFICATE": gone, "RELAY_GRPC__TLS__KEY": gone}
    missing = command("serve", settings=settings)
    assert missing.code == 1
    assert f"grpc.tls.certificate: {gone} can't be read: No such file or directory" in missing.err


def test_wrong_files_for_a_push_end_the_start(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone.crt")
    settings = {
        "RELAY_TOPICS__orders__DELIVERY__MODE": "push",
        "RELAY_TOPICS__orders__DELIVERY__TARGET": "127.0.0.1:1",
        "RELAY_TOPICS__orders__DELIVERY__TLS__CA": gone,
    }
    ended = command("serve", settings=settings)
    assert ended.code == 1
    assert f"delivery.tls.ca: {gone} can't be read" in ended.err
