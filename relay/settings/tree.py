"""The settings as one frozen tree. Only `relay.settings.load` reads files and the environment."""

from __future__ import annotations

import platform
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, Secret, WithJsonSchema, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from relay.core.dispatch import Dispatch, ListPolicy, Reclaim, StreamPolicy
from relay.core.durability import Durability
from relay.core.endpoints.listener_bounds import CallBounds, ConnectionBounds
from relay.core.endpoints.redis_url import with_credentials
from relay.core.endpoints.secrets import MASK, mask
from relay.core.partitions import MAX_PARTITIONS
from relay.core.policy import DeadLetterPolicy, Policies, RetryPolicy, TopicPolicy
from relay.core.validate import MOST_PAYLOAD_BYTES
from relay.settings import rules
from relay.settings.fields import Number, Section, Whole, field
from relay.settings.trust import (
    AuthenticationSettings,
    GrpcTlsSettings,
    TargetTlsSettings,
    TlsSettings,
    beyond_loopback,
    insecure,
    socket_group,
)

MIB = 1 << 20
FRAMING = 128 * 1024
"""Bytes that a gRPC message needs beside a payload: headers (64 KiB), names, framing."""


class RedisUrl(Secret[str]):
    """A Redis URL that shows `***` in the place of its password; `get_secret_value()` returns the whole
    URL."""

    def _display(self) -> str:
        return mask(self.get_secret_value())


class Password(Secret[str]):
    """A password that shows `***`, or nothing if it is empty."""

    def _display(self) -> str:
        return MASK if self.get_secret_value() else ""


Prefix = Annotated[str, AfterValidator(rules.prefix)]
Topic = Annotated[str, AfterValidator(rules.topic)]


class RedisSettings(Section):
    """Where the timers are kept."""

    url: Annotated[RedisUrl, BeforeValidator(rules.location)] = field(
        "redis://127.0.0.1:6379/0",
        "",
        "The server: `redis://`, `rediss://` (TLS), `unix://`; its Sentinels: "
        "`redis+sentinel://h1,h2,h3/name/0`; or nodes of a Cluster: `redis+cluster://h1,h2,h3`. Passwords "
        "are never shown. See [redis.md](../how-to/redis.md).",
    )
    username: str = field("", "", "The user, if the URL names none.")
    password: Annotated[Password, BeforeValidator(rules.password)] = field(
        "",
        "",
        "The password, if the URL has none, as a Secret holds it, without percent-encoding. It is never "
        "shown.",
    )
    sentinel_password: Annotated[Password, BeforeValidator(rules.password)] = field(  # see 0035
        "",
        "",
        "The password of the Sentinels, in the place of the URL's `sentinel_password`. It is never shown.",
    )
    start_timeout: Number = field(
        3.0, "seconds", "How long a start waits for Redis before it fails.", ge=0.1, le=300
    )
    command_timeout: Number = field(
        5.0, "seconds", "How long one call to Redis may take before it counts as failed.", ge=0.1, le=300
    )
    write_ttl: Number = field(
        1.0,
        "seconds",
        "How long one try of a call that changes something may act. Redis refuses it from then on, so that a "
        "further try is safe. A caller's deadline makes it shorter.",
        ge=0.05,
        le=60,
    )
    allow_eviction: bool = field(
        False,
        "",
        "Start although Redis may evict any key (`maxmemory-policy` `allkeys-*`) and lose timers by that. "
        "A policy `volatile-*` needs no permission: no key that holds timers has a time to live.",
    )
    timeline_key: Prefix = field("timers_timeline", "", "Prefix of the sorted sets of due times.")
    payloads_key: Prefix = field("timers_payloads", "", "Prefix of the hashes of payloads.")
    leases_key: Prefix = field("timers_leases", "", "Prefix of the hashes of leases.")
    dead_key: Prefix = field("timers_dead", "", "Prefix of the streams of dead letters.")
    pause_key: Prefix = field("timers_pause", "", "Prefix of the keys that pause a topic.")
    journal_key: Prefix = field("timers_journal", "", "Prefix of the streams that are topics' journals.")
    marks_key: Prefix = field(
        "timers_marks", "", "Prefix of the keys that a sweep of the pipeline leaves marks in."
    )
    retiring_key: Prefix = field(
        "timers_retiring",
        "",
        "Prefix of the hashes that fence the pipeline's writes to the cold store.",
    )
    ledger_key: Prefix = field(
        "timers_ledger", "", "Prefix of the sets of timers that a load of the pipeline has inserted."
    )
    ready_key: Prefix = field(
        "timers_ready", "", "Prefix of the ready lists of topics with `dispatch: list`."
    )
    processing_key: Prefix = field(
        "timers_processing", "", "Prefix of the lists of entries that workers have taken from a ready list."
    )
    taken_key: Prefix = field(
        "timers_taken", "", "Prefix of the hashes that hold since when an entry is in a processing list."
    )
    stream_key: Prefix = field(
        "timers_stream", "", "Prefix of the streams of topics with `dispatch: stream`."
    )
    retries_key: Prefix = field(
        "timers_retries",
        "",
        "Prefix of the sorted sets of entries that a stream's group tries again: `…:{group}:{topic}`.",
    )
    group_key: Prefix = field(
        "timers_group",
        "",
        "Prefix of the hashes of records of a group's entries: `…:{group}:{topic}`, and of the latest "
        "claims of its consumers: `…:{group}:{consumer}:{topic}`.",
    )
    topics_key: Prefix = field("timers_topics", "", "The set of all topics, and the prefix of its locks.")
    wake_channel: Prefix = field("timers_wake", "", "Prefix of the pub/sub channels of wake hints.")
    hash_tags: bool = field(
        False,
        "",
        "Put topics into braces, `timers_timeline:{orders}`, so that a Redis Cluster keeps all keys of a "
        "topic in one slot. Timers that were stored under the other naming are not found. With a "
        "`redis+cluster://` URL they are always on.",
    )

    @model_validator(mode="after")
    def _credentials_fit(self) -> Self:
        rules.credentials_fit(
            self.url.get_secret_value(),
            username=self.username,
            password=self.password.get_secret_value(),
            sentinel_password=self.sentinel_password.get_secret_value(),
        )
        return self

    @property
    def location(self) -> str:
        """The URL with the credentials that stand beside it: all that a connection needs. It is secret."""
        return with_credentials(
            self.url.get_secret_value(),
            username=self.username,
            password=self.password.get_secret_value(),
            sentinel_password=self.sentinel_password.get_secret_value(),
        )

    @model_validator(mode="after")
    def _prefixes_differ(self) -> Self:
        rules.distinct_prefixes(
            timeline_key=self.timeline_key,
            payloads_key=self.payloads_key,
            leases_key=self.leases_key,
            dead_key=self.dead_key,
            pause_key=self.pause_key,
            journal_key=self.journal_key,
            marks_key=self.marks_key,
            retiring_key=self.retiring_key,
            ledger_key=self.ledger_key,
            ready_key=self.ready_key,
            processing_key=self.processing_key,
            taken_key=self.taken_key,
            stream_key=self.stream_key,
            retries_key=self.retries_key,
            group_key=self.group_key,
            topics_key=self.topics_key,
        )
        return self


def max_connections(default: int, more: str) -> Any:
    """The fields of a listener that bound its connections."""
    what = f"At most this many connections are open at a time. {more}"
    return field(default, "connections", what, ge=1, le=100_000)


def max_header_bytes() -> Any:
    """The fields of a listener that bound its connections."""
    return field(
        16 * 1024,
        "bytes",
        "The largest header of one request or call, with its path and its metadata.",
        ge=4096,
        le=MIB,
    )


WHEN_FULL = (
    "A further one takes the place of the one that has waited longest for a request; if every connection "
    "has a request under way, the further one is answered 503."
)


def idle_timeout() -> Any:
    """The field of an HTTP listener that bounds idle connections."""
    return field(
        60.0,
        "seconds",
        "The relay closes a connection on which no whole request header has come for this long, since it was "
        "opened or since the last answer, and one whose caller takes nothing of an answer for this long.",
        ge=1,
        le=86_400,
    )


class GrpcSettings(Section):
    """The gRPC API, for the application beside the relay."""

    listen: Annotated[str, AfterValidator(rules.listen_or_socket)] = field(
        "127.0.0.1:7451",
        "",
        "`host:port` or `unix:/path`. Beyond loopback and sockets it needs `grpc.tls` and callers that "
        "prove who they are, or `grpc.insecure`. Port 0 takes any free one.",
    )
    insecure: bool = insecure("grpc")
    tls: GrpcTlsSettings = GrpcTlsSettings()
    socket_mode: Annotated[str, BeforeValidator(rules.octal_mode)] = field(
        "0660", "octal digits", "Permissions of the Unix socket. They have no effect on TCP."
    )
    socket_group: str = socket_group()
    max_message_bytes: Whole = field(
        16 * MIB, "bytes", "The largest message that a caller may send.", ge=MIB, le=256 * MIB
    )
    max_connections: Whole = max_connections(
        400, "The relay closes a further one at once; those that are open go on."
    )
    max_header_bytes: Whole = max_header_bytes()
    max_connection_calls: Whole = field(
        1_000,
        "calls",
        "At most this many calls are under way on one connection; the client's gRPC holds back further ones. "
        "A `Deliver` stream counts for as long as it is open.",
        ge=10,
        le=100_000,
    )
    max_calls: Whole = field(
        4_000,
        "calls",
        "At most this many calls are under way on all connections together; a further one is refused with "
        "RESOURCE_EXHAUSTED. A call that waits takes about 20 KiB of memory.",
        ge=10,
        le=1_000_000,
    )
    idle_timeout: Number = field(
        60.0,
        "seconds",
        "The relay closes a connection that has had no call for this long, and one whose handshake takes "
        "longer. It pings a connection that is silent for this long during a call, and closes it if no "
        "answer comes within as long again. A live client's gRPC answers by itself, so a quiet `Deliver` "
        "stream stays.",
        ge=1,
        le=86_400,
    )

    @property
    def mode(self) -> int:
        """`socket_mode` as a number."""
        return int(self.socket_mode, 8)

    @property
    def bounds(self) -> CallBounds:
        """The limits in the form that the listener takes."""
        return CallBounds(
            self.max_connections,
            self.max_header_bytes,
            self.idle_timeout,
            self.max_message_bytes,
            self.max_connection_calls,
            self.max_calls,
        )


class HttpSettings(Section):
    """Probes and metrics; read-only."""

    listen: Annotated[str, AfterValidator(rules.listen)] = field(
        "0.0.0.0:7452", "", "`host:port` of `/healthz/…` and `/metrics`. Port 0 takes any free one."
    )
    tls: TlsSettings = TlsSettings()
    ready_needs_redis: bool = field(
        True,
        "",
        "Whether `/healthz/ready` fails while Redis is away. Set `false` if an application must stay in "
        "service "
        "without its timers.",
    )
    max_connections: Whole = max_connections(100, WHEN_FULL)
    max_header_bytes: Whole = max_header_bytes()
    idle_timeout: Number = idle_timeout()

    @property
    def bounds(self) -> ConnectionBounds:
        """The limits in the form that the listener takes."""
        return ConnectionBounds(self.max_connections, self.max_header_bytes, self.idle_timeout)


class ApiSettings(Section):
    """The API in JSON over HTTP, for those without a gRPC client."""

    enabled: Annotated[
        Literal["auto", "on", "off"],
        BeforeValidator(rules.switch),
        WithJsonSchema({"enum": ["auto", "on", "off", True, False]}),
    ] = field(
        "auto",
        "",
        "Whether the API in JSON is served. `auto` serves it if `grpc.listen` is `host:port`, and not "
        "beside a "
        "Unix socket, which fewer processes can reach than loopback.",
    )
    listen: Annotated[str, AfterValidator(rules.listen)] = field(
        "127.0.0.1:7453",
        "",
        "`host:port`. Beyond loopback it needs `api.tls` and callers that prove who they are, or "
        "`api.insecure`. Port 0 takes any free one.",
    )
    insecure: bool = insecure("api")
    tls: TlsSettings = TlsSettings()
    allowed_hosts: Annotated[str, AfterValidator(rules.host_names)] = field(
        "",
        "",
        "Host names, with commas between them, that callers may use beside loopback and the address "
        "itself. A "
        "request with another `Host` is refused: it may come from a page in somebody's browser.",
    )
    max_body_bytes: Whole = field(
        16 * MIB, "bytes", "The largest body that a caller may send.", ge=1024, le=256 * MIB
    )
    max_connections: Whole = max_connections(400, WHEN_FULL)
    max_header_bytes: Whole = max_header_bytes()
    idle_timeout: Number = idle_timeout()

    @property
    def bounds(self) -> ConnectionBounds:
        """The limits in the form that the listener takes."""
        return ConnectionBounds(self.max_connections, self.max_header_bytes, self.idle_timeout)

    @property
    def hosts(self) -> frozenset[str]:
        """`allowed_hosts`, each by itself, in lower case."""
        return frozenset(name.strip().lower() for name in self.allowed_hosts.split(",") if name.strip())


class ConsoleSettings(Section):
    """The console: pages for people, on the listener of the API."""

    enabled: bool = field(
        True,
        "",
        "Whether the listener of the API serves the console under `/console`; without the API there is "
        "none. See "
        "[console.md](../how-to/console.md).",
    )
    trace_url: Annotated[str, AfterValidator(rules.trace_url)] = field(
        "",
        "",
        "Where the console finds a trace, with `{trace_id}` in the place of its id: "
        "`https://jaeger.example.com/trace/{trace_id}`. Empty means no links.",
    )


class LogSettings(Section):
    """The log, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = field(
        "info", "", "The log has lines of this level and of those above it."
    )
    format: Literal["auto", "json", "text"] = field(
        "auto",
        "",
        "The form of a line: `json`, readable `text`, or `auto`, which is text on a terminal and else JSON.",
    )


class DeliverySettings(Section):
    """How the timers of a topic reach the application."""

    mode: Literal["stream", "push"] = field(
        "stream",
        "",
        "`stream`: applications dial the relay (`DeliveryService`). `push`: the relay dials `target`, which "
        "serves `TimerHandler`.",
    )
    target: Annotated[str, AfterValidator(rules.target)] = field(
        "", "", "The application that the relay dials, with `push` only: `host:port` or `unix:/path`."
    )
    tls: TargetTlsSettings = TargetTlsSettings()

    @model_validator(mode="after")
    def _target_fits(self) -> Self:
        rules.target_fits(self.mode, self.target)
        return self


class RetrySettings(Section):
    """How often and how soon a failed delivery is tried again.

    The wait before attempt n+1 is a random time between 0 and `initial` × `multiplier`^(n-1), at most `max`.
    """

    max_attempts: Whole = field(
        25, "attempts", "The number of failed attempts after which a timer is dead.", ge=1, le=1_000_000
    )
    initial: Number = field(1.0, "seconds", "The longest wait after the first attempt.", ge=0, le=86_400)
    multiplier: Number = field(
        2.0, "times", "The factor by which the longest wait grows with each further attempt.", ge=1, le=100
    )
    max: Number = field(600.0, "seconds", "The longest wait after any attempt.", ge=0, le=604_800)
    max_age: Number = field(
        0.0,
        "seconds",
        "A timer is dead if its next attempt would come later than this after its due time. 0 means no "
        "limit.",
        ge=0,
        le=31_536_000,
    )

    def to_policy(self) -> RetryPolicy:
        """The settings in the form that the engine takes."""
        return RetryPolicy(**self.model_dump())


class DeadLetterSettings(Section):
    """What becomes of dead timers. `dead_letters: off` is short for `keep: false`."""

    keep: bool = field(True, "", "Keep dead timers as dead letters, which people can inspect and redrive.")
    keep_expired: bool = field(False, "", "Keep expired timers as dead letters, too.")
    max_count: Whole = field(
        0,
        "dead letters",
        "The number of dead letters that a topic keeps. Every few minutes the oldest ones beyond it are "
        "removed, "
        "counted and logged. 0 means no limit.",
        ge=0,
        le=100_000_000,
    )
    max_age: Number = field(
        0.0,
        "seconds",
        "The age beyond which dead letters are removed in the same way. 0 means no limit.",
        ge=0,
        le=3_153_600_000,
    )

    def to_policy(self) -> DeadLetterPolicy:
        """The settings in the form that the engine takes."""
        return DeadLetterPolicy(**self.model_dump())


class StreamSettings(Section):
    """For topics with `dispatch: stream`: the consumer group of this relay's application."""

    group: Annotated[str, AfterValidator(rules.group)] = field(
        "",
        "",
        "The application's consumer group. Relays with the same name share the timers; each name gets all of "
        "them. A name has letters, digits, `.`, `_` and `-`.",
    )
    min_idle_time: Number = field(  # see 0044
        30.0,
        "seconds",
        "How long an entry lies idle before it counts as left by a dead consumer, in the place of "
        "`lease_ttl`. "
        "Relays renew what is at work, so this is the time to recover from a relay's death. With "
        "`renew: false`, or with plain consumers in the group, give 3 to 5 times the handler's P99.",
        ge=0.1,
        le=86_400,
    )
    reclaim: Annotated[Literal["all", "dedicated", "off"], BeforeValidator(rules.off)] = field(
        "all",
        "",
        "Whether this relay takes entries that a dead consumer of its group has left. `all` takes them "
        "beside "
        "new entries, `dedicated` takes only them, `off` leaves them to other relays.",
    )
    max_length: Whole = field(
        0,
        "entries",
        "The number of entries that the stream keeps. The oldest ones beyond it are dropped, counted and "
        "logged, even if a group has not had them. 0 means no limit; an abandoned group then keeps all "
        "entries.",
        ge=0,
        le=1_000_000_000,
    )

    def to_policy(self) -> StreamPolicy:
        """The settings in the form that the engine takes."""
        return StreamPolicy(self.group, Reclaim(self.reclaim), self.max_length)


class ListSettings(Section):
    """For topics with `dispatch: list`."""

    processing_timeout: Number = field(
        0.0,
        "seconds",
        "The time after which an entry of the processing list goes back to the ready list, because its "
        "worker is "
        "taken for dead. Give more than the longest job takes. 0 means that the processing list is left "
        "alone.",
        ge=0,
        le=604_800,
    )

    def to_policy(self) -> ListPolicy:
        """The settings in the form that the engine takes."""
        return ListPolicy(self.processing_timeout)


class PolicySettings(Section):
    """How the timers of a topic are treated."""

    dispatch: Literal["lease", "list", "stream"] = field(
        "lease",
        "",
        "Where due timers go. `lease` delivers them from the timeline; `list` moves them to a list "
        "for workers of any kind; `stream` moves them to a stream, from which every group gets each. See "
        "[dispatch.md](../how-to/dispatch.md).",
    )

    polling_interval: Number = field(
        0.05, "seconds", "The shortest time between two claims that find nothing.", ge=0.001, le=60
    )
    max_polling_interval: Number = field(
        5.0,
        "seconds",
        "The longest sleep of a topic: a timer that a foreign publisher wrote without a hint is at most "
        "this late.",
        ge=0.001,
        le=3600,
    )
    lease_ttl: Number = field(
        30.0,
        "seconds",
        "The length of a lease, after which the timers of a dead relay are delivered again. "
        "With `renew: false` it is the handler's limit, too; give 3 to 5 times the handler's P99 then.",
        ge=0.1,
        le=86_400,
    )
    renew: bool = field(True, "", "Renew leases while the application works.")
    delivery_timeout: Number = field(
        600.0,
        "seconds",
        "How long the lease of a silent delivery is renewed. After that its timer is due again.",
        ge=0.1,
        le=604_800,
    )
    claim_batch: Whole = field(300, "timers", "The most timers that one call claims.", ge=1, le=500)
    max_payload_bytes: Whole = field(
        MIB, "bytes", "The largest payload that is accepted.", ge=0, le=MOST_PAYLOAD_BYTES
    )
    max_concurrent: Whole = field(
        100,
        "deliveries",
        "The most deliveries to a pushed application that are under way at a time. A stream names its own "
        "limit.",
        ge=1,
        le=10_000,
    )
    max_claims: Whole = field(  # see 0028
        1_000,
        "deliveries",
        "The number of sent deliveries after which a timer is dead, whether or not they counted as attempts.",
        ge=1,
        le=1_000_000,
    )
    max_waiting: Whole = field(
        0,
        "timers",
        "The number of timers at which the topic is full: Schedule refuses new ones. 0 means no limit.",
        ge=0,
        le=1_000_000_000,
    )
    min_recurrence_interval: Number = field(
        1.0,
        "seconds",
        "The shortest time between two nominal instants of a recurrence: a rule that fires more often is "
        "refused. Recurrences that are there already go on.",
        ge=0.1,
        le=31_622_400,
    )
    partitions: Annotated[Whole, AfterValidator(rules.partitions)] = field(
        1,
        "partitions",
        "The number of partitions of a new topic, a power of two. A topic of which something is kept goes on "
        "as it is. See [partitions.md](../how-to/partitions.md).",
        ge=1,
        le=MAX_PARTITIONS,
    )
    durability: Annotated[str, AfterValidator(rules.durability)] = field(
        "stored",
        "",
        "What the OK of a change means: `stored`; `fsync`, on the server's disk; `replicas:1` to "
        "`replicas:5`, at this number of replicas; both as in `fsync+replicas:1`. A call may ask for more. "
        "See [durability.md](../how-to/durability.md).",
    )
    journal: bool = field(
        False, "", "Record every change of the topic's timers in Redis. See [journal.md](journal.md)."
    )
    journal_max_length: Whole = field(
        1_000_000,
        "records",
        "The number of records that the journal keeps, of about 70 bytes each. Older ones are dropped, "
        "counted "
        "and logged.",
        ge=1,
        le=1_000_000_000,
    )
    sealing: bool = field(
        False,
        "",
        "Seal the payloads and headers of the topic's timers and recurrences, by the keyring of "
        "`sealing.keyring`. What is there already stays as it is. Not with `dispatch: list` or `stream`. See "
        "[sealing.md](../how-to/sealing.md).",
    )
    delivery: DeliverySettings = DeliverySettings()
    retry: RetrySettings = RetrySettings()
    dead_letters: Annotated[DeadLetterSettings, BeforeValidator(rules.on_or_off)] = DeadLetterSettings()
    stream: StreamSettings = StreamSettings()
    list: ListSettings = ListSettings()

    @model_validator(mode="after")
    def _times_fit(self) -> Self:
        rules.dispatch_fits(self.dispatch, mode=self.delivery.mode, group=self.stream.group)
        rules.sealing_fits(self.sealing, self.dispatch)
        rules.partitions_fit(self.to_policy())
        rules.times_fit(self.to_policy())
        return self

    def to_policy(self) -> TopicPolicy:
        """The settings in the form that the engine takes."""
        own = self.model_dump(exclude={"delivery", "retry", "dead_letters", "dispatch", "stream", "list"})
        if self.dispatch == "stream":
            own["lease_ttl"] = self.stream.min_idle_time
        own["durability"] = Durability.parse(self.durability)
        return TopicPolicy(
            **own,
            dispatch=Dispatch(self.dispatch),
            stream=self.stream.to_policy(),
            ready=self.list.to_policy(),
            target=self.delivery.target,
            target_tls=self.delivery.tls.to_policy(),
            retry=self.retry.to_policy(),
            dead_letters=self.dead_letters.to_policy(),
        )


class RecurrencesSettings(Section):
    """Recurrences that the relay puts as it starts."""

    file: str = field(
        "",
        "",
        "A file with a list of recurrences, as `relay recur apply` takes it; see "
        "[recurrences.md](../how-to/recurrences.md#in-a-file). Each is put before the relay serves; what is "
        "like this already, or in no entry, stays as it is. An entry that is wrong refuses the start.",
    )


class SealingSettings(Section):
    """The keys by which payloads and headers are sealed and opened."""

    keyring: str = field(
        "",
        "",
        "The keyring's file, in YAML: `write`, the id of the key that seals, and `keys`, which maps ids to "
        "`{file: PATH}` or `{base64: TEXT}`. It is read again when it changes; one that is wrong leaves the "
        "old keys in use. With it a relay opens what is sealed in any topic. See "
        "[sealing.md](../how-to/sealing.md).",
    )


class Settings(BaseSettings):
    """All settings. Each topic's entry is complete: `defaults` has filled in what it leaves out."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False
    )

    redis: RedisSettings = RedisSettings()
    grpc: GrpcSettings = GrpcSettings()
    http: HttpSettings = HttpSettings()
    api: ApiSettings = ApiSettings()
    console: ConsoleSettings = ConsoleSettings()
    authentication: AuthenticationSettings = AuthenticationSettings()
    log: LogSettings = LogSettings()
    name: Annotated[str, AfterValidator(rules.relay_name)] = field(
        "",
        "",
        "What this relay is called in journals, by `relay history`, and in the action log: up to 253 "
        "letters, digits, `_`, `.` and `-`. Empty: the name of its host, which in Kubernetes is the pod's.",
    )
    call_timeout: Number = field(
        10.0,
        "seconds",
        "How long a call may take if its caller does not say how long it waits, by a gRPC deadline or the "
        "header `Relay-Timeout`. When the time is over, the answer is UNAVAILABLE, or 503, and the call has "
        "no effect from then on.",
        ge=0.1,
        le=3600,
    )
    drain_timeout: Number = field(
        20.0, "seconds", "How long a stop waits for deliveries to be settled.", ge=0, le=3600
    )
    stop_last: bool = field(
        False,
        "",
        "On SIGTERM go on claiming and delivering until every application has drained, for at most "
        "`drain_timeout`; then drain. Use it in a container that is stopped together with its application.",
    )
    defaults: PolicySettings = PolicySettings()
    topics: dict[Topic, PolicySettings] = Field(
        default_factory=dict, description="Overrides `defaults`, field by field."
    )
    topics_closed: bool = field(
        False, "", "Refuse every topic that has no entry in `topics`, so that a misspelt name is an error."
    )
    recurrences: RecurrencesSettings = RecurrencesSettings()
    policy_file: str = field(
        "",
        "",
        "A file that says which callers may do what to which topics; see "
        "[policy.md](../how-to/policy.md). Empty lets every caller do everything. A changed file is in use "
        "within seconds; one that can't be used leaves the policy before it in force, and refuses the start.",
    )
    action_log_max_length: Whole = field(
        100_000,
        "entries",
        "The entries that the action log keeps, two for each action, of about 400 bytes each. "
        "Older ones are dropped, counted and logged. See [what-people-did.md](../how-to/what-people-did.md).",
        ge=100,
        le=10_000_000,
    )
    sealing: SealingSettings = SealingSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take nothing but the arguments: `load` reads the file and the environment."""
        return (init_settings,)

    @model_validator(mode="before")
    @classmethod
    def _inherit_defaults(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Fill in each topic from `defaults`. A value of the wrong form is left to later checks."""
        defaults, topics = data.get("defaults"), data.get("topics")
        if isinstance(defaults, PolicySettings):
            defaults = defaults.model_dump()
        if not isinstance(defaults, dict) or not isinstance(topics, dict):
            return data
        filled = {
            topic: _filled(_for(own, _long(defaults)), _long(own)) if isinstance(own, dict) else own
            for topic, own in topics.items()
        }
        return {**data, "topics": filled}

    @model_validator(mode="after")
    def _unasked_work_is_per_topic(self) -> Self:
        # The relay must know which topics to poll, so those that are pushed or promoted must be named.
        if self.defaults.delivery.mode == "push":
            raise rules.Misfit("defaults.delivery.mode", "must be stream: name each pushed topic in topics")
        if self.defaults.dispatch != "lease":
            raise rules.Misfit(
                "defaults.dispatch", "must be lease: name each topic with a list or a stream in topics"
            )
        return self

    @model_validator(mode="after")
    def _sealing_has_keys(self) -> Self:
        entries = {
            "defaults": self.defaults,
            **{f"topics.{name}": each for name, each in self.topics.items()},
        }
        for path, policy in entries.items():
            if policy.sealing and not self.sealing.keyring:
                raise rules.Misfit(f"{path}.sealing", "needs a keyring; name its file in sealing.keyring")
        return self

    @model_validator(mode="after")
    def _dispatch_is_meant(self) -> Self:
        for topic, policy in self.topics.items():
            for name in rules.DISPATCHED:
                section: Section = getattr(policy, name)
                for said in sorted(section.model_fields_set) if name in policy.model_fields_set else ():
                    if getattr(section, said) != type(section).model_fields[said].default:
                        rules.section_fits(("topics", topic, name, said), name, policy.dispatch)
        return self

    @model_validator(mode="after")
    def _payloads_fit(self) -> Self:
        room = self.grpc.max_message_bytes - FRAMING
        for path, policy in (
            ("defaults", self.defaults),
            *((f"topics.{t}", p) for t, p in self.topics.items()),
        ):
            if policy.max_payload_bytes > room:
                raise rules.Misfit(
                    f"{path}.max_payload_bytes",
                    f"must be at most {room}, which is grpc.max_message_bytes less "
                    f"{FRAMING} for headers, got {policy.max_payload_bytes}",
                )
        return self

    @model_validator(mode="after")
    def _listeners_differ(self) -> Self:
        api = {"api.listen": self.api.listen} if self.serves_api else {}
        rules.listeners_differ({"grpc.listen": self.grpc.listen, "http.listen": self.http.listen, **api})
        return self

    @model_validator(mode="after")
    def _strangers_are_meant(self) -> Self:
        beyond_loopback("grpc", self.grpc.listen, self.grpc.tls, self.authentication, self.grpc.insecure)
        if self.serves_api:
            beyond_loopback("api", self.api.listen, self.api.tls, self.authentication, self.api.insecure)
        return self

    @property
    def called(self) -> str:
        """What this relay is called in journals and in the action log."""
        return self.name or "-".join(platform.node().split())

    @property
    def serves_api(self) -> bool:
        """Whether the API in JSON is served."""
        if self.api.enabled == "auto":
            return not self.grpc.listen.startswith("unix:")
        return self.api.enabled == "on"

    @property
    def serves_console(self) -> bool:
        """Whether the console is served."""
        return self.serves_api and self.console.enabled

    def policies(self) -> Policies:
        """Return the policies of all topics in the form that the engine takes."""
        own = {topic: policy.to_policy() for topic, policy in self.topics.items()}
        return Policies(self.defaults.to_policy(), own, self.topics_closed)


def _for(own: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Return `defaults` without sections for another `dispatch` than the topic's `own`."""
    return {
        name: value
        for name, value in defaults.items()
        if name not in rules.DISPATCHED or name == own.get("dispatch")
    }


def _long(policy: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with `dead_letters` in its long form, so that the rest of it is inherited."""
    if "dead_letters" not in policy:
        return policy
    return {**policy, "dead_letters": rules.on_or_off(policy["dead_letters"])}


def _filled(defaults: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return `own`, filled in from `defaults` level by level."""
    filled = {**defaults, **own}
    for name, inner in defaults.items():
        if isinstance(inner, dict) and isinstance(own.get(name), dict):
            filled[name] = _filled(inner, own[name])
    return filled
