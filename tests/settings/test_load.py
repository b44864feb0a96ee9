"""Settings come from the environment over the file over the defaults, field by field."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from pydantic import ValidationError

from relay.core.dispatch import Dispatch, Reclaim
from relay.core.errors import InvalidField
from relay.core.policy import TopicPolicy
from relay.settings import Settings, SettingsError, load
from relay.settings.keys import key_names
from relay.store.keys import KeyNames


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "relay.yaml"


def test_without_anything_the_defaults_hold() -> None:
    """They are those of the core and of the store, which tests and tools use without settings."""
    settings = load(environ={})
    assert settings.policies()("any") == TopicPolicy()
    assert key_names(settings.redis) == KeyNames()


def test_the_environment_stands_above_the_file(config: Path) -> None:
    config.write_text("redis: {start_timeout: 7, command_timeout: 8}\ndrain_timeout: 9\n")
    environ = {"RELAY_REDIS__START_TIMEOUT": "1.5", "RELAY_DEFAULTS__RENEW": "off"}
    settings = load(config, environ=environ)
    assert settings.redis.start_timeout == 1.5
    assert settings.redis.command_timeout == 8
    assert settings.drain_timeout == 9
    assert settings.defaults.renew is False


def test_overrides_stand_above_all(config: Path) -> None:
    config.write_text("grpc: {listen: 'localhost:1', max_message_bytes: 2000000}\n")
    settings = load(
        config, environ={"RELAY_GRPC__LISTEN": "localhost:2"}, overrides={"grpc.listen": "localhost:3"}
    )
    assert settings.grpc.listen == "localhost:3"
    assert settings.grpc.max_message_bytes == 2_000_000


def test_a_topic_overrides_the_defaults_field_by_field(config: Path) -> None:
    config.write_text(
        "defaults: {lease_ttl: 60, claim_batch: 10}\n"
        "topics:\n  invoices: {claim_batch: 20}\n  a.b: {renew: no}\n  plain:\n"
    )
    settings = load(config, environ={})
    invoices = settings.policies()("invoices")
    assert (invoices.lease_ttl, invoices.claim_batch, invoices.delivery_timeout) == (60, 20, 600)
    assert settings.policies()("a.b").renew is False
    assert settings.policies()("plain") == settings.policies()("unheard of")
    assert settings.policies()("plain").claim_batch == 10


def test_a_topic_set_in_the_environment_keeps_its_case_and_inherits(config: Path) -> None:
    config.write_text("defaults: {claim_batch: 10}\n")
    environ = {"RELAY_TOPICS__My__Topic__LEASE_TTL": "60", "RELAY_DEFAULTS__RENEW": "false"}
    policy = load(config, environ=environ).policies()("My__Topic")
    assert asdict(policy) == {**asdict(TopicPolicy()), "lease_ttl": 60, "claim_batch": 10, "renew": False}


def test_a_pushed_topic(config: Path) -> None:
    """`delivery` is a level of its own, which inherits like any other."""
    config.write_text(
        "topics:\n  mails: {delivery: {mode: push, target: 'mailer:50051'}, max_concurrent: 7}\n  plain:\n"
    )
    policies = load(config, environ={}).policies()
    assert (policies("mails").target, policies("mails").max_concurrent) == ("mailer:50051", 7)
    assert policies.pushed() == {"mails": policies("mails")}
    assert policies("plain").target == policies("unheard of").target == ""


@pytest.mark.parametrize("name", ["mails", "My__mails", "delivery"])
def test_a_topic_pushed_by_the_environment(name: str) -> None:
    environ = {
        f"RELAY_TOPICS__{name}__DELIVERY__MODE": "push",
        f"RELAY_TOPICS__{name}__DELIVERY__TARGET": "unix:/run/app.sock",
        f"RELAY_TOPICS__{name}__LEASE_TTL": "60",
    }
    policies = load(environ=environ).policies()
    assert (policies(name).target, policies(name).lease_ttl) == ("unix:/run/app.sock", 60)


@pytest.mark.parametrize(
    ("content", "keep", "max_count", "keep_expired"),
    [
        ("topics: {a: {dead_letters: off}}", False, 0, False),
        ("defaults: {dead_letters: {max_count: 7}}\ntopics: {a: {dead_letters: on}}", True, 7, False),
        ("defaults: {dead_letters: off}\ntopics: {a: {dead_letters: {keep_expired: true}}}", False, 0, True),
        ("defaults: {dead_letters: off}\ntopics: {a: {dead_letters: on}}", True, 0, False),
    ],
)
def test_the_short_form_of_dead_letters_inherits_the_rest(
    config: Path, content: str, *, keep: bool, max_count: int, keep_expired: bool
) -> None:
    config.write_text(content)
    policy = load(config, environ={}).policies()("a").dead_letters
    assert (policy.keep, policy.max_count, policy.keep_expired) == (keep, max_count, keep_expired)


def test_the_environment_knows_the_short_form() -> None:
    environ = {"RELAY_DEFAULTS__DEAD_LETTERS": "off", "RELAY_TOPICS__a__DEAD_LETTERS": "on"}
    policies = load(environ=environ).policies()
    assert (policies("b").dead_letters.keep, policies("a").dead_letters.keep) == (False, True)


def test_closed_topics_admit_those_that_are_configured() -> None:
    policies = load(environ={"RELAY_TOPICS_CLOSED": "true", "RELAY_TOPICS__a__LEASE_TTL": "60"}).policies()
    assert policies.admit("topic", "a") == "a"
    with pytest.raises(InvalidField, match="topics_closed") as caught:
        policies.admit("topic", "b")
    assert caught.value.field == "topic"
    assert load(environ={}).policies().admit("topic", "b") == "b"


def test_a_level_without_content_counts_as_left_out(config: Path) -> None:
    config.write_text("redis:\ngrpc:\ntopics:\n# nothing else\n")
    assert load(config, environ={}) == load(environ={})
    config.write_text("")
    assert load(config, environ={}) == load(environ={})


def test_what_kubernetes_puts_beside_a_service_called_relay_is_left_alone() -> None:
    environ = {"RELAY_PORT": "tcp://10.0.0.1:7451", "RELAY_SERVICE_HOST": "10.0.0.1", "RELAY_TARGET": "x:1"}
    assert load(environ=environ) == load(environ={})


def test_the_tree_is_frozen() -> None:
    settings = load(environ={})
    with pytest.raises(ValidationError):
        settings.drain_timeout = 1.0
    with pytest.raises(ValidationError):
        settings.redis.start_timeout = 1.0


def test_nothing_is_read_behind_the_callers_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `load` reads the environment; a tree made by hand is what it says."""
    monkeypatch.setenv("DRAIN_TIMEOUT", "1")
    monkeypatch.setenv("RELAY_DRAIN_TIMEOUT", "2")
    assert Settings().drain_timeout == 20
    assert load().drain_timeout == 2


@pytest.mark.parametrize(
    "url",
    [
        "redis://h",
        "redis://h:1/",
        "rediss://u:p@h:1/2",
        "unix:///run/redis.sock",
        "redis://[::1]:6379/0",
        "unix:///run/redis.sock?db=1",
    ],
)
def test_urls_that_redis_py_takes_are_taken(url: str) -> None:
    settings = load(environ={"RELAY_REDIS__URL": url})
    assert settings.redis.url.get_secret_value() == url


@pytest.mark.parametrize("query", ["foo=bar", "db=x", "decode_responses=true", "socket_timeout=9"])
def test_options_in_the_url_that_would_change_what_relay_relies_on(query: str) -> None:
    """They are refused by name, not passed on to redis-py."""
    with pytest.raises(SettingsError, match=r"redis\.url: .*(only these options|database number)"):
        load(environ={"RELAY_REDIS__URL": f"redis://h:1/0?{query}"})


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:7451", "localhost:65535", "unix:/run/relay.sock"])
def test_addresses_for_the_api(listen: str) -> None:
    assert load(environ={"RELAY_GRPC__LISTEN": listen}).grpc.listen == listen


def test_the_sockets_mode_is_octal() -> None:
    assert load(environ={"RELAY_GRPC__SOCKET_MODE": "0600"}).grpc.mode == 0o600
    assert load(environ={"RELAY_GRPC__SOCKET_MODE": "666"}).grpc.mode == 0o666


def test_hosts_are_told_apart() -> None:
    """Names and addresses, with commas and spaces between them, whatever their case."""
    settings = load(environ={"RELAY_API__ALLOWED_HOSTS": "Relay.Internal, 10.0.0.7,fd00::7"})
    assert settings.api.hosts == {"relay.internal", "10.0.0.7", "fd00::7"}
    assert load(environ={}).api.hosts == frozenset()


@pytest.mark.parametrize(
    ("environ", "serves"),
    [
        ({}, True),
        ({"RELAY_GRPC__LISTEN": "unix:/run/relay.sock"}, False),
        ({"RELAY_GRPC__LISTEN": "unix:/run/relay.sock", "RELAY_API__ENABLED": "on"}, True),
        ({"RELAY_API__ENABLED": "off"}, False),
        ({"RELAY_API__ENABLED": "False"}, False),
        ({"RELAY_API__ENABLED": "true"}, True),
    ],
)
def test_there_is_no_json_beside_a_socket(environ: dict[str, str], serves: bool) -> None:
    """Unless it is asked for: who gives a socket wants fewer callers than loopback has."""
    assert load(environ=environ).serves_api is serves


def test_yaml_reads_off_as_false(tmp_path: Path) -> None:
    for text, serves in (("off", False), ("on", True), ("auto", True), ("'off'", False), ("false", False)):
        config = tmp_path / "relay.yaml"
        config.write_text(f"api: {{enabled: {text}}}")
        assert load(config, environ={}).serves_api is serves


def test_where_due_timers_go(tmp_path: Path) -> None:
    """A stream's idle time is its lease; a bare `off`, which YAML reads as false, is the word."""
    config = tmp_path / "relay.yaml"
    config.write_text(
        "defaults: {stream: {group: billing}}\n"
        "topics:\n"
        "  fan: {dispatch: stream, stream: {min_idle_time: 7, reclaim: off}}\n"
        "  jobs: {dispatch: list, list: {processing_timeout: 60}}\n"
        "  plain: {}\n"
    )
    policies = load(config, environ={}).policies()
    fan, jobs = policies("fan"), policies("jobs")
    assert (fan.dispatch, fan.stream.group, fan.stream.reclaim) == (Dispatch.STREAM, "billing", Reclaim.OFF)
    assert (fan.lease_ttl, jobs.lease_ttl, jobs.ready.processing_timeout) == (7.0, 30.0, 60.0)
    assert policies.promoted().keys() == {"fan", "jobs"}
