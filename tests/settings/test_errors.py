"""Every fault is a sentence that names its path, and its variable where it came from one."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.core.durability import FORMS
from relay.settings import SettingsError, doubtful, load


def faults(tmp_path: Path, content: str = "", environ: dict[str, str] | None = None) -> list[str]:
    """The problems of a file and an environment."""
    config = tmp_path / "relay.yaml"
    config.write_text(content)
    with pytest.raises(SettingsError) as caught:
        load(config, environ=environ or {})
    assert str(caught.value) == "\n".join(caught.value.problems)
    return [problem.replace(str(config), "FILE") for problem in caught.value.problems]


NO_TARGET = "must say whom to dial, as in 127.0.0.1:50051, since delivery.mode is push"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("defaults: {lease_ttl: banana}", "must be a number of seconds from 0.1 to 86400, got 'banana'"),
        ("defaults: {lease_ttl: 0}", "must be a number of seconds from 0.1 to 86400, got 0"),
        ("defaults: {lease_ttl: .nan}", "must be a number of seconds from 0.1 to 86400, got nan"),
        ("defaults: {lease_ttl: .inf}", "must be a number of seconds from 0.1 to 86400, got inf"),
        ("defaults: {lease_ttl: true}", "must be a number, got true"),
        ("defaults: {lease_ttl: }", "must be a number of seconds from 0.1 to 86400, got nothing"),
        ("defaults: {lease_ttl: [1]}", "must be a number of seconds from 0.1 to 86400, got a list"),
    ],
)
def test_a_wrong_number(tmp_path: Path, content: str, expected: str) -> None:
    assert faults(tmp_path, content) == [f"defaults.lease_ttl: {expected}"]


LONG_LEASE = (
    "topics.a.b.lease_ttl: must be at most delivery_timeout while renew is on, got 700 over 600 seconds"
)
WHOLE = "must be a whole number of timers from 1 to 500"
SECONDS = "must be a number of seconds from 0.1 to 86400"
HOSTS = "must be host names with commas between them, without ports"
LISTEN = "must be host:port with a port from 0 to 65535"
SOCKET = "must name an absolute path, as in unix:/run/relay.sock"
MODE = 'must be three octal digits in quotes, such as "0660"'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("defaults: {claim_batch: 501}", f"defaults.claim_batch: {WHOLE}, got 501"),
        ("defaults: {claim_batch: 2.5}", f"defaults.claim_batch: {WHOLE}, got 2.5"),
        ("defaults: {renew: maybe}", "defaults.renew: must be true or false, got 'maybe'"),
        ("log: {level: loud}", "log.level: must be one of debug, info, warning, error, got 'loud'"),
        ("drain_timeout: -1", "drain_timeout: must be a number of seconds from 0 to 3600, got -1"),
        ("grpc: 5", "grpc: must be a mapping of settings, got 5"),
        ("topics: [a]", "topics: must be a mapping of settings, got a list"),
        (
            "topics: {a: {delivery: {mode: shove}}}",
            "topics.a.delivery.mode: must be one of stream, push, got 'shove'",
        ),
        ("topics: {a: {delivery: push}}", "topics.a.delivery: must be a mapping of settings, got 'push'"),
        (
            "topics: {a: {delivery: {mode: push, target: here}}}",
            "topics.a.delivery.target: must be host:port with a port from 0 to 65535, got 'here'",
        ),
        (
            "topics: {a: {delivery: {mode: push, target: 'here:0'}}}",
            "topics.a.delivery.target: must name a port to dial, got 'here:0'",
        ),
        ("topics: {a: 5}", "topics.a: must be a mapping of settings, got 5"),
        ("topics: {a: {lease_ttl: x}}", f"topics.a.lease_ttl: {SECONDS}, got 'x'"),
        ("http: {listen: here}", f"http.listen: {LISTEN}, got 'here'"),
        ("http: {listen: 'h:70000'}", f"http.listen: {LISTEN}, got 'h:70000'"),
        ("http: {listen: '::1:80'}", f"http.listen: {LISTEN}, got '::1:80'"),
        ("api: {enabled: maybe}", "api.enabled: must be one of auto, on, off, got 'maybe'"),
        ("api: {listen: 'unix:/x'}", f"api.listen: {LISTEN}, got 'unix:/x'"),
        (
            "api: {allowed_hosts: 'relay.internal:7453'}",
            f"api.allowed_hosts: {HOSTS}, got 'relay.internal:7453'",
        ),
        ("api: {allowed_hosts: 'a, ,b'}", f"api.allowed_hosts: {HOSTS}, got ''"),
        ("grpc: {listen: 'unix:x'}", f"grpc.listen: {SOCKET}, got 'unix:x'"),
        ("grpc: {socket_mode: 0660}", f"grpc.socket_mode: {MODE}, got 432"),
        ("redis: {timeline_key: 'a{'}", "redis.timeline_key: contains a brace; leave out { and }"),
        ("redis: {timeline_key: ''}", "redis.timeline_key: is empty; give it 1 to 256 bytes"),
        ("topics: {'a}': {}}", "topics.a}: the topic's name contains a brace; leave out { and }"),
    ],
)
def test_a_wrong_value(tmp_path: Path, content: str, expected: str) -> None:
    assert faults(tmp_path, content) == [expected]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("defaults: {lease_tll: 3}", "defaults.lease_tll: is not a setting; did you mean lease_ttl?"),
        ("topics: {a.b: {lease_tll: 3}}", "topics.a.b.lease_tll: is not a setting; did you mean lease_ttl?"),
        ("rediss: {}", "rediss: is not a setting; did you mean redis?"),
        ("redis: {xyzzy: 1}", "redis.xyzzy: is not a setting"),
        (
            "topics: {a: {delivery: {taget: x}}}",
            "topics.a.delivery.taget: is not a setting; did you mean target?",
        ),
    ],
)
def test_an_unknown_key(tmp_path: Path, content: str, expected: str) -> None:
    assert faults(tmp_path, content) == [expected]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            "defaults: {polling_interval: 6}",
            "defaults.polling_interval: must be at most max_polling_interval, got 6 over 5 seconds",
        ),
        (
            "topics: {a.b: {delivery: {mode: push}}}",
            f"topics.a.b.delivery.target: {NO_TARGET}",
        ),
        (
            "topics: {a.b: {delivery: {target: 'here:1'}}}",
            "topics.a.b.delivery.target: has no effect while delivery.mode is stream; set it to push",
        ),
        (
            "defaults: {delivery: {mode: push, target: 'here:1'}}",
            "defaults.delivery.mode: must be stream: name each pushed topic in topics",
        ),
        (
            "topics: {a.b: {durability: always}}",
            f"topics.a.b.durability: must be {FORMS}, got 'always'",
        ),
        (
            "topics: {a.b: {partitions: 6}}",
            "topics.a.b.partitions: must be a power of two from 1 to 1024, got 6",
        ),
        (
            "topics: {a.b: {partitions: 2048}}",
            "topics.a.b.partitions: must be a whole number of partitions from 1 to 1024, got 2048",
        ),
        (
            "topics: {a.b: {partitions: 2, dispatch: list}}",
            "topics.a.b.partitions: must be 1 while dispatch is list: its workers look in one place",
        ),
        (
            "topics: {a.b: {partitions: 2, dispatch: stream, stream: {group: x}}}",
            "topics.a.b.partitions: must be 1 while dispatch is stream: its workers look in one place",
        ),
        (
            "topics: {a.b: {partitions: 8, max_waiting: 7}}",
            "topics.a.b.max_waiting: must be at least partitions, which is 8, got 7",
        ),
        (
            "topics: {a.b: {partitions: 8, dead_letters: {max_count: 7}}}",
            "topics.a.b.dead_letters.max_count: must be at least partitions, which is 8, got 7",
        ),
        (
            "topics: {'a#b': {}}",
            "topics.a#b: the topic's name contains a #, which names partitions; leave it out",
        ),
        (
            "topics: {a.b: {dispatch: stream}}",
            "topics.a.b.stream.group: must name the application, as in billing, since dispatch is stream",
        ),
        (
            "topics: {a.b: {dispatch: list, delivery: {mode: push, target: 'here:1'}}}",
            "topics.a.b.delivery.mode: must be stream, since dispatch is list: workers take what is there",
        ),
        (
            "topics: {a.b: {stream: {group: billing}}}",
            (
                "topics.a.b.stream.group: has no effect while dispatch is lease; "
                "set it to stream, or leave this out"
            ),
        ),
        (
            "topics: {a.b: {dispatch: stream, stream: {group: x}, list: {processing_timeout: 5}}}",
            (
                "topics.a.b.list.processing_timeout: has no effect while dispatch is stream; "
                "set it to list, or leave this out"
            ),
        ),
        (
            "{defaults: {stream: {group: x}}, topics: {a.b: {dispatch: list, stream: {reclaim: off}}}}",
            (
                "topics.a.b.stream.reclaim: has no effect while dispatch is list; "
                "set it to stream, or leave this out"
            ),
        ),
        (
            "defaults: {dispatch: list}",
            "defaults.dispatch: must be lease: name each topic with a list or a stream in topics",
        ),
        (
            "topics: {a.b: {dispatch: stream, stream: {group: x, min_idle_time: 700}}}",
            f"topics.a.b.stream.min_idle_time: {LONG_LEASE.partition(': ')[2]}",
        ),
        (
            "defaults: {stream: {group: 'a:b'}}",
            "defaults.stream.group: must be 1 to 64 letters, digits, '.', '_' or '-', got 'a:b'",
        ),
        (
            "topics: {a.b: {lease_ttl: 700}}",
            LONG_LEASE,
        ),
        (
            "redis: {timeline_key: k, leases_key: k}",
            "redis.timeline_key: must differ from leases_key, both are 'k'",
        ),
        (
            "redis: {timeline_key: a, payloads_key: 'a:b'}",
            (
                "redis.payloads_key: must not begin with timeline_key and a colon, 'a:': "
                "two topics could meet in one key"
            ),
        ),
        (
            "topics: {a.b: {max_payload_bytes: 16777216}}",
            (
                "topics.a.b.max_payload_bytes: must be at most 16646144, "
                "which is grpc.max_message_bytes less 131072 for headers, got 16777216"
            ),
        ),
    ],
)
def test_values_that_contradict_each_other(tmp_path: Path, content: str, expected: str) -> None:
    assert faults(tmp_path, content) == [expected]


def test_the_defaults_may_name_a_group_for_those_with_a_stream(tmp_path: Path) -> None:
    config = tmp_path / "relay.yaml"
    config.write_text(
        "defaults: {stream: {group: billing}, list: {processing_timeout: 5}}\n"
        "topics: {a: {dispatch: stream}, b: {}, c: {dispatch: list}, d: {stream: {}}}"
    )
    topics = load(config, environ={}).topics
    assert topics["a"].stream.group == "billing"
    assert topics["c"].list.processing_timeout == 5


def test_a_long_lease_is_fine_without_renewal(tmp_path: Path) -> None:
    config = tmp_path / "relay.yaml"
    config.write_text("defaults: {lease_ttl: 700, renew: false}")
    assert load(config, environ={}).defaults.lease_ttl == 700


def test_a_fault_in_the_defaults_is_told_once_and_not_for_each_topic(tmp_path: Path) -> None:
    content = "defaults: {lease_ttl: 700}\ntopics: {a: {claim_batch: 1}, b: {claim_batch: 0}}"
    problems = faults(tmp_path, content)
    assert [problem.partition(":")[0] for problem in problems] == [
        "defaults.lease_ttl",
        "topics.b.claim_batch",
    ]


def test_all_faults_are_told_at_once_with_their_variables(tmp_path: Path) -> None:
    environ = {
        "RELAY_DEFAULTS__LEASE_TTL": "banana",
        "RELAY_DEFALTS__X": "1",
        "RELAY_DRAIN_TIMEOUT": "",
        "RELAY_TOPICS__a__CLAIM_BATCH": "many",
    }
    assert sorted(faults(tmp_path, "log: {format: xml}", environ)) == [
        "defalts.x: is not a setting (from RELAY_DEFALTS__X)",
        (
            "defaults.lease_ttl: must be a number of seconds from 0.1 to 86400, got 'banana' "
            "(from RELAY_DEFAULTS__LEASE_TTL)"
        ),
        "drain_timeout: must be a number of seconds from 0 to 3600, got '' (from RELAY_DRAIN_TIMEOUT)",
        "log.format: must be one of auto, json, text, got 'xml'",
        (
            "topics.a.claim_batch: must be a whole number of timers from 1 to 500, got 'many' "
            "(from RELAY_TOPICS__a__CLAIM_BATCH)"
        ),
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a: [", "FILE, line 1, column 5: is not valid YAML"),
        ("log: {}\nlog: {}", "FILE, line 2: the key 'log' comes twice"),
        ("topics: {404: {}}", "FILE, line 1: the key '404' must be in quotes to be text"),
        ("- a", "FILE: must be a mapping of settings at its top level"),
    ],
)
def test_a_file_that_is_no_settings_file(tmp_path: Path, content: str, expected: str) -> None:
    (problem,) = faults(tmp_path, content)
    assert problem == expected


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="can't be read: No such file or directory"):
        load(tmp_path / "none.yaml", environ={})


TWICE = "is in url already; give it in one place"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{url: 'redis://:a@h', password: b}", f"redis.password: {TWICE}"),
        ("{url: 'redis://a:b@h', username: c}", f"redis.username: {TWICE}"),
        ("{username: a}", "redis.username: goes with a password; set password too"),
        (
            "{sentinel_password: a}",
            "redis.sentinel_password: goes with redis+sentinel:// or rediss+sentinel:// only",
        ),
        (
            "{url: 'redis+sentinel://h/m?sentinel_password=a', sentinel_password: b}",
            f"redis.sentinel_password: {TWICE}",
        ),
        ("{password: 5}", "redis.password: must be text; put it in quotes"),
        (
            '{password: "a\\n"}',
            "redis.password: ends with a line end; make the Secret without one: printf instead of echo",
        ),
    ],
)
def test_credentials_are_said_once(tmp_path: Path, content: str, expected: str) -> None:
    assert faults(tmp_path, f"redis: {content}") == [expected]


def test_a_file_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.settings.document.MOST_BYTES", 1000)
    with pytest.raises(SettingsError, match="/dev/zero: has more than 1000 bytes, too many for such a file"):
        load(Path("/dev/zero"), environ={})


@pytest.mark.parametrize(
    ("variable", "sentence"),
    [
        ("RELAY_REDDIS__URL", "reddis.url: is not a setting; did you mean RELAY_REDIS__URL?"),
        ("RELAY__REDIS__URL", "_redis.url: is not a setting; did you mean RELAY_REDIS__URL?"),
        ("RELAY_REDIS__URI", "redis.uri: is not a setting; did you mean url?"),
        (
            "RELAY_DEFAULT__LEASE_TTL",
            "default.lease_ttl: is not a setting; did you mean RELAY_DEFAULTS__LEASE_TTL?",
        ),
        (
            "RELAY_TOPIC__Orders__LEASE_TTL",
            "topic.orders.lease_ttl: is not a setting; did you mean RELAY_TOPICS__Orders__LEASE_TTL?",
        ),
        ("RELAY_XYZZY__X", "xyzzy.x: is not a setting"),
    ],
)
def test_a_misspelt_variable_gets_a_guess(tmp_path: Path, variable: str, sentence: str) -> None:
    """As a key of the file does."""
    assert faults(tmp_path, "", {variable: "1"}) == [f"{sentence} (from {variable})"]


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("RELAY_REDIS_URL", "RELAY_REDIS__URL"),
        ("RELAY_GRPC_LISTEN", "RELAY_GRPC__LISTEN"),
        ("RELAY_DRAIN_TIMEUOT", "RELAY_DRAIN_TIMEOUT"),
        ("RELAY_LEASE_TTL", "RELAY_DEFAULTS__LEASE_TTL"),
        ("RELAY_TOPIC_CLOSED", "RELAY_TOPICS_CLOSED"),
    ],
)
def test_what_may_be_somebody_else_s_is_doubted_and_no_error(variable: str, meant: str) -> None:
    """Without `__`: it has no effect, and a sentence says so."""
    environ = {variable: "1"}
    assert load(environ=environ) == load(environ={})
    assert doubtful(environ) == [f"{variable} is not a setting and has no effect; did you mean {meant}?"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "http: {listen: '127.0.0.1:7451'}",
            "http.listen: must have another port than grpc.listen, which listens on 7451 too",
        ),
        (
            "api: {listen: '0.0.0.0:7452'}",
            "api.listen: must have another port than http.listen, which listens on 7452 too",
        ),
        (
            "grpc: {listen: '[::1]:80'}\napi: {listen: '[::1]:80'}",
            "api.listen: must have another port than grpc.listen, which listens on 80 too",
        ),
    ],
)
def test_two_listeners_on_one_port(tmp_path: Path, content: str, said: str) -> None:
    """The relay's own other setting is named; the system would speak of another process."""
    assert faults(tmp_path, content) == [said]


@pytest.mark.parametrize(
    "environ",
    [
        {
            "RELAY_GRPC__LISTEN": "127.0.0.1:0",
            "RELAY_HTTP__LISTEN": "127.0.0.1:0",
            "RELAY_API__LISTEN": "127.0.0.1:0",
        },
        {"RELAY_HTTP__LISTEN": "127.0.0.2:7451"},
        {"RELAY_API__LISTEN": "127.0.0.1:7451", "RELAY_API__ENABLED": "off"},
        {"RELAY_GRPC__LISTEN": "unix:/run/relay.sock"},
    ],
)
def test_listeners_that_differ(environ: dict[str, str]) -> None:
    """Any free ports, other addresses, and what is switched off."""
    load(environ=environ)


@pytest.mark.parametrize("level", ["API", "HTTP", "GRPC", "REDIS", "TOPICS", "DEFAULTS", "LOG"])
def test_the_name_of_a_level_may_be_somebody_else_s_and_is_no_error(level: str) -> None:
    """A script's own RELAY_API keeps no relay from starting; a sentence says that it is no setting."""
    environ = {f"RELAY_{level}": "http://127.0.0.1:7453"}
    assert load(environ=environ) == load(environ={})
    assert doubtful(environ) == [
        f"RELAY_{level} is a level of settings and has no effect; set its fields, as in RELAY_{level}__…"
    ]


def test_the_variables_of_others_are_left_alone() -> None:
    """Kubernetes makes some for each Service whose name begins with `relay`; tools and tests have theirs."""
    services = {
        f"RELAY{name}{end}": "x"
        for name in ("", "_API", "_HTTP", "_REDIS", "_GRPC", "_DRAIN_TIMEOUT", "_A__B", "__PORT_A")
        for end in (
            *("_SERVICE_HOST", "_SERVICE_PORT", "_SERVICE_PORT_GRPC", "_PORT", "_PORT_7451_TCP"),
            *("_PORT_7451_TCP_PROTO", "_PORT_7451_TCP_PORT", "_PORT_7451_UDP_ADDR"),
        )
    }
    tools = ("TARGET", "CONFIG", "REQUIRE_ALL", "TEST_CHAOS", "CONTAINERS", "REDIS_SECRET_URL", "VERSION")
    environ = {**services, **{f"RELAY_{name}": "x" for name in tools}}
    assert load(environ=environ) == load(environ={})
    assert doubtful(environ) == []
