"""The JavaScript example behind TLS: a certificate, a token that is replaced, and what it refuses to send."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509

from relay.trust import tokens
from tests.e2e import node
from tests.e2e.test_listeners import tls
from tests.missing import skip
from tests.trust.authority import Authority
from tests.worlds.relay.processes import Relay, free_address
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.checkout,
    pytest.mark.timeout(300),
]  # npm may have to fetch its packages first

POLICY = """
rules:
  - {principals: ["dns:reminders.shop"], topics: [reminders], verbs: [deliver]}
  - {principals: ["token:web", "dns:reminders.shop"], topics: [reminders], verbs: [schedule]}
"""


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    try:
        node.node()
    except node.NpmFailed as failure:
        skip(f"npm package ({failure})", "npm ci --prefix examples/javascript")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def behind_tls(stage: Stage, authority: Authority, **more: str) -> Relay:
    """A relay that others can reach, whose certificate has a name that nobody dials."""
    pair = authority.issue("relay", x509.DNSName("relay.shop"))
    listen = free_address().replace("127.0.0.1", "0.0.0.0")
    settings = {**tls("GRPC", pair), "RELAY_GRPC__LISTEN": listen, "RELAY_API__ENABLED": "false", **more}
    relay = stage.relay(settings=settings, start=False)
    relay.spawn()
    serving = eventually(lambda: relay._serving(0), f"it serves: {relay.output()[-2000:]}")
    relay.target = serving["grpc"].replace("0.0.0.0", "127.0.0.1")
    return relay


def produce(relay: Relay, *words: str, **shown: str) -> tuple[int, str]:
    done = node.run(node.EXAMPLE / "producer.mjs", words, RELAY_TARGET=relay.target, **shown)
    return done.returncode, done.stdout + done.stderr


def test_a_certificate_opens_a_stream(stage: Stage, authority: Authority, tmp_path: Path) -> None:
    """And lets a producer schedule; without it nobody is heard."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    asked = {"CLIENT_CA": str(authority.certificate), "CLIENT_CERTIFICATES": "required"}
    more = {f"RELAY_GRPC__TLS__{name}": value for name, value in asked.items()}
    relay = behind_tls(stage, authority, RELAY_POLICY_FILE=str(policy), **more)
    own = authority.issue("reminders", x509.DNSName("reminders.shop"))
    shown = {
        "RELAY_CA": str(authority.certificate),
        "RELAY_CERTIFICATE": str(own.certificate),
        "RELAY_KEY": str(own.key),
        "RELAY_SERVER_NAME": "relay.shop",
    }
    script = node.Script(
        stage.directory,
        "application",
        node.EXAMPLE / "application.mjs",
        *("stream", "reminders"),
        RELAY_TARGET=relay.target,
        **shown,
    )
    stage.join(script).spawn()
    assert produce(relay, "schedule", "reminders", "tea", "--id", "tea", **shown)[0] == 0
    script.says("reminders/tea: tea (attempt 1)")
    denied = produce(relay, "schedule", "invoices", "tea", **shown)
    assert denied[0] != 0
    assert "the policy does not give dns:reminders.shop the verb schedule on topic 'invoices'" in denied[1]
    other = {**shown, "RELAY_SERVER_NAME": "another.shop"}
    assert produce(relay, "schedule", "reminders", "tea", **other)[0] != 0, "another name in its certificate"
    refused = node.run(
        node.EXAMPLE / "application.mjs", ["stream", "invoices"], RELAY_TARGET=relay.target, **shown
    )
    assert refused.returncode != 0
    assert "the relay refuses: the policy does not give dns:reminders.shop the verb deliver" in refused.stderr
    assert script.terminate() == 0


def test_a_token_is_read_again_when_it_changes(stage: Stage, authority: Authority, tmp_path: Path) -> None:
    """One application keeps its client while the relay's file and its own get another token."""
    first, second = tokens.new(), tokens.new()
    known, own = tmp_path / "tokens", tmp_path / "token"
    known.write_text(tokens.line("web", first))
    own.write_text(f"{first}\n")
    relay = behind_tls(stage, authority, RELAY_AUTHENTICATION__TOKENS_FILE=str(known))
    shown = {
        "RELAY_CA": str(authority.certificate),
        "RELAY_TOKEN_FILE": str(own),
        "RELAY_SERVER_NAME": "relay.shop",
    }
    script = node.Script(
        stage.directory, "steady", node.HERE / "steady_producer.mjs", RELAY_TARGET=relay.target, **shown
    )
    stage.join(script).spawn()
    script.says("scheduled")
    known.write_text(tokens.line("web", second))
    script.says("refused: authorization: the token is not one that this relay takes")
    own.write_text(f"{second}\n")
    script.says("scheduled again")
    assert script.wait() == 0
    assert first not in script.output()


@pytest.mark.parametrize(
    ("shown", "problem"),
    [
        ({"RELAY_TOKEN_FILE": "t"}, "a token for relay.shop:7451 would go over the network in the clear"),
        ({"RELAY_CA": "c", "RELAY_KEY": "k"}, "RELAY_CERTIFICATE and RELAY_KEY go together"),
        ({"RELAY_CERTIFICATE": "c", "RELAY_KEY": "k"}, "RELAY_CA must be given"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_dialled(shown: dict[str, str], problem: str) -> None:
    done = node.run(
        node.EXAMPLE / "producer.mjs", ["cancel", "a", "b"], RELAY_TARGET="relay.shop:7451", **shown
    )
    assert done.returncode != 0
    assert problem in done.stderr
