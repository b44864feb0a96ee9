"""What people and deployments write: settings, variables, addresses, files of recurrences, policies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, cast

from relay.core.endpoints import addresses, redis_url, secrets
from relay.core.trust.verbs import AccessVerb
from relay.declared.reading import read_declared
from relay.settings import SettingsError, load
from relay.trust.policy_file import parse


class Held:
    """A file that is on no disk."""

    def __init__(self, held: bytes) -> None:
        self._held = held

    def open(self, _mode: str) -> BytesIO:
        return BytesIO(self._held)

    def __str__(self) -> str:
        return "relay.yaml"


def held(data: bytes) -> Path:
    return cast("Path", Held(data))


@contextmanager
def _in_settings(path: str) -> Iterator[None]:
    """As the settings tell of it."""
    try:
        yield
    except ValueError as problem:
        raise SettingsError([f"{path}: {problem}"]) from None


def _settings(data: bytes) -> None:
    load(held(data), environ={})


def _variables(data: bytes) -> None:
    lines = data.decode(errors="surrogateescape").replace("\x00", "").splitlines()
    load(None, environ={name: value for name, _, value in (line.partition("=") for line in lines)})


def _declared(data: bytes) -> None:
    read_declared(held(data))


def _policy(data: bytes) -> None:
    policy, problems = parse(data.decode(errors="replace"))
    policy.decide("spiffe://example.org/ns/shop/web", AccessVerb.READ, "orders")
    if problems:
        raise SettingsError([str(problem) for problem in problems])


def _redis_url(data: bytes) -> None:
    text = data.decode(errors="replace")
    assert secrets.mask(secrets.mask(text)) == secrets.mask(text)
    with _in_settings("redis.url"):
        redis_url.parse(text)


def _address(data: bytes) -> None:
    with _in_settings("grpc.listen"):
        host, port = addresses.split(data.decode(errors="replace"))
    assert addresses.split(addresses.join(host, port)) == (host, port)


_SETTINGS = (
    b"redis:\n  url: redis://localhost:6379/0\ngrpc:\n  listen: 127.0.0.1:7451\ndefaults:\n  lease_ttl: 30\n",
    b"topics:\n  orders:\n    retry: {max_attempts: 5, initial: 1.5}\n    journal: true\nlog: {level: info}",
    b"defaults: &d\n  max_payload_bytes: 1024\ntopics: {a: {}, 'b.c': {lease_ttl: 10}}\n",
)
_YAML_WORDS = (
    *(b"0x_", b"0b_", b"0o9", b"1:99:99", b".inf", b".nan", b"1e999", b"2026-02-30", b"2026-01-01T25:00:00Z"),
    *(b"[" * 2_000, b"{a: " * 1_000, b"&a [*a]", b"<<: *d", b"<<: 1", b"!!python/object:os.system", b"? "),
    *(
        b"!!int x",
        b"!!float x",
        b"!!binary x",
        b"!!set x",
        b"!!omap x",
        b"!!timestamp x",
        b"!!bool x",
        b"- ",
        b": ",
    ),
    *(b"\xef\xbb\xbf", b"%YAML 9.9\n---\n", b"---\n", b"|\n", b"~", b"null", b"!!null x", b'"\\ud800"', b"'"),
)
_DECLARED = (
    b"- {topic: t, recurrence_id: r, rule: {cron: '0 3 * * *', zone: Europe/Berlin}, message: {a: 1}}\n",
    (
        b"- calendar: holidays\n  dates: [2026-12-24, '2026-12-25']\n- topic: t\n  recurrence_id: q\n"
        b"  rule: {every_sec: 90, start_time: 2026-01-01T00:00:00Z}\n"
    ),
)
_POLICIES = (
    (
        b"rules:\n  - name: shop\n    principals: ['spiffe://example.org/ns/shop/*', 'token:ops-*']\n"
        b"    topics: [orders, 'orders-*']\n    verbs: [schedule, deliver]\n"
    ),
    b"rules: [{principals: [anonymous, 'dns:*.shop.example'], topics: ['*'], verbs: [read, payload]}]\n",
    b"rules: []\n",
)
_POLICY_WORDS = (
    *(b"*" * 2_000, b"'*'", b"spiffe://*", b"jwt:*:x", b"dns:", b"subject:CN=*,*", b"token:**"),
    *(b"principals: ", b"topics: ", b"verbs: ", b"operate", b"admin", b"rules: ", b"name: "),
    *_YAML_WORDS,
)
_URLS = (
    b"redis://user:secret@localhost:6379/0?db=1",
    b"rediss+sentinel://:secret@a:1,b:2/primary/3?sentinel_password=x&ssl_ca_certs=/ca.pem",
    b"redis+cluster://a:1,b:2?addresses=10.0.0.1:1=a:1",
    b"unix:///run/redis.sock?db=2",
)

TARGETS: dict[str, tuple[Any, ...]] = {
    "settings": (_settings, _SETTINGS, (SettingsError,), _YAML_WORDS, 1_200, 10.0),
    "variables": (
        _variables,
        (
            b"RELAY_GRPC__LISTEN=127.0.0.1:1\nRELAY_TOPICS__a__LEASE_TTL=5\nRELAY_REDIS__URL=redis://x",
            b"RELAY_PORT=1",
        ),
        (SettingsError,),
        (b"\nRELAY_", b"__", b"TOPICS__", b"=", b"DEFAULTS__", b"RELAY___=", b"[]", b"{}"),
        300,
        10.0,
    ),
    "declared": (_declared, _DECLARED, (SettingsError,), _YAML_WORDS, 800, 10.0),
    "policy": (_policy, _POLICIES, (SettingsError,), _POLICY_WORDS, 1_500, 10.0),
    "redis_url": (
        _redis_url,
        _URLS,
        (SettingsError,),
        (b"[::1]", b"[", b"]", b"@", b"%zz", b"%00", b"?db=x", b"&", b"#", b"//", b":0x1", b","),
        3_000,
    ),
    "address": (
        _address,
        (b"127.0.0.1:7451", b"[::1]:0", b"host:65535"),
        (SettingsError,),
        (b":", b"[", b"]"),
        2_000,
    ),
}
