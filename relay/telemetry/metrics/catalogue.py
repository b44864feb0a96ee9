"""All that is measured: names, units (UCUM), meanings and attributes, by OpenTelemetry's conventions.

docs/how-to/runbook.md lists them; `tools/metrics_docs.py` writes that list from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class InstrumentKind(Enum):
    """What an instrument is to OpenTelemetry."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"
    UP_DOWN_COUNTER = "up-down counter"
    """A number of which the sum over all relays means something too."""


@dataclass(frozen=True, slots=True)
class InstrumentSpec:
    """One instrument. `bounds` are the buckets of a histogram, inclusive upper ends."""

    name: str
    unit: str
    description: str
    attributes: tuple[str, ...] = ("topic",)
    kind: InstrumentKind = InstrumentKind.COUNTER
    bounds: tuple[float, ...] = ()


# Counters

_counters: list[InstrumentSpec] = []


def counter(
    name: str, unit: str, description: str, attributes: tuple[str, ...] = ("topic",)
) -> InstrumentSpec:
    """Declare a counter, which `Instruments.count` takes from then on."""
    spec = InstrumentSpec(name, unit, description, attributes)
    _counters.append(spec)
    return spec


SCHEDULED = counter("relay.timers.scheduled", "{timer}", "Timers stored through this relay.")
CLAIMED = counter("relay.timers.claimed", "{timer}", "Timers that this relay took under a lease.")
DELIVERED = counter("relay.timers.delivered", "{timer}", "Timers handed to an application, each attempt.")
RETRIED = counter(
    "relay.timers.retried", "{timer}", "Timers handed to an application after an attempt had failed."
)
MOVED = counter(
    "relay.timers.moved",
    "{timer}",
    "Timers and dead letters that this relay took to another partition, as a change of their number wants.",
)
SETTLED = counter(
    "relay.timers.settled", "{timer}", "Outcomes written, by what the application said.", ("topic", "outcome")
)
STALE = counter(
    "relay.timers.stale",
    "{timer}",
    "Outcomes that Redis refused, and that changed nothing: the lease was lost, or the timer gone.",
)
SILENT = counter("relay.timers.silent", "{timer}", "Deliveries given up: no outcome within delivery_timeout.")
TICKED = counter("relay.recurrences.ticked", "{timer}", "Occurrences of recurrences that this relay made.")
LEFT_OUT = counter(
    "relay.recurrences.left_out",
    "{instant}",
    "Nominal instants of recurrences that this relay left without an occurrence, by the reason.",
    ("topic", "reason"),
)
PROMOTED = counter(
    "relay.timers.promoted",
    "{timer}",
    "Timers that this relay moved from the timeline to a list or a stream.",
)
RETURNED = counter(
    "relay.list.returned",
    "{entry}",
    "Entries given back to the ready list since their worker did not finish them in time.",
)
STREAM_TRIMMED = counter(
    "relay.stream.trimmed",
    "{entry}",
    "Entries removed from the stream after every group had acknowledged them.",
)
STREAM_DROPPED = counter(
    "relay.stream.dropped",
    "{entry}",
    "Entries removed from the stream by stream.max_length before every group had acknowledged them.",
)
RELEASED = counter("relay.timers.released", "{timer}", "Leases given back without an outcome.")
DEAD = counter(
    "relay.timers.dead",
    "{timer}",
    "Timers that died, by reason, but not by expiry.",
    ("topic", "reason"),
)
EXPIRED = counter("relay.timers.expired", "{timer}", "Timers that expired before their delivery.")
REDRIVEN = counter(
    "relay.timers.redriven", "{timer}", "Dead letters that were brought back to life through this relay."
)
TRIMMED = counter(
    "relay.dead_letters.trimmed",
    "{timer}",
    "Dead letters removed by dead_letters.max_count or dead_letters.max_age.",
)
REPAIRED = counter(
    "relay.timers.repaired",
    "{entry}",
    "Payloads and lease records removed that had no timer, by kind.",
    ("topic", "kind"),
)
ORPHANS = counter("relay.timers.orphans", "{timer}", "Entries removed since their payload was missing.")
UNDELIVERABLE = counter(
    "relay.timers.undeliverable", "{timer}", "Timers that died since no application can be given their id."
)
PARKED = counter(
    "relay.timers.parked",
    "{timer}",
    "Timers put aside, each time, since the key that they are sealed with is missing.",
)
JOURNAL_TRIMMED = counter(
    "relay.journal.trimmed", "{record}", "Records of the journal removed by journal_max_length."
)
ACTIONS_TRIMMED = counter(
    "relay.actions.trimmed",
    "{entry}",
    "Entries of the action log, removed by action_log_max_length.",
    (),
)
ACTIONS_UNWRITTEN = counter(
    "relay.actions.unwritten",
    "{entry}",
    "Entries that the action log lacks, since it could not be written; the relay's log has them.",
    (),
)
UNHEARD = counter(
    "relay.wake_hints.refused",
    "{hint}",
    "Wake hints that Redis refused to publish, and refused tries to subscribe to them.",
    ("command",),
)
STORE_ERRORS = counter(
    "relay.store.errors", "{error}", "Calls to Redis that failed, by kind.", ("error.type",)
)
CLOCK_STEPPED_BACK = counter(
    "relay.store.clock.stepped_back",
    "{step}",
    "Steps back of the clock of Redis. For as long as one is, calls that were given up may still act.",
    (),
)
UNREADABLE = counter(
    "relay.messages.unreadable",
    "{message}",
    "gRPC messages that could not be parsed, by the method that they came for.",
    ("rpc.method",),
)
CONNECTIONS_REFUSED = counter(
    "relay.connections.refused",
    "{connection}",
    "HTTP connections that a listener closed for what came or did not come on them, by reason.",
    ("listener", "reason"),
)
UNAUTHENTICATED = counter(
    "relay.calls.unauthenticated",
    "{call}",
    "Calls and requests refused since their callers showed nothing that proves who they are.",
    ("listener",),
)
DENIED = counter(
    "relay.calls.denied",
    "{call}",
    "Calls, and timers of batches, that the policy does not allow, by the verb that they needed.",
    ("verb",),
)
OVER_BOUND = counter(
    "relay.calls.over_bound",
    "{call}",
    "Calls and streams refused since their callers were over a bound of the policy, by principal (the first "
    "100, then `other`) and bound.",
    ("principal", "bound"),
)
HELD_BACK = counter(
    "relay.streams.held_back",
    "s",
    "Time that streams had to wait for bytes_per_second of the policy, by principal (the first 100, then "
    "`other`).",
    ("principal",),
)
FILES_TAKEN_OVER = counter(
    "relay.files.taken_over",
    "{file}",
    "Changed certificates, keys, tokens, policies and keyrings that were taken over, by the setting that "
    "names them.",
    ("setting",),
)
FILES_REFUSED = counter(
    "relay.files.refused",
    "{file}",
    "Changed certificates, keys, tokens, policies and keyrings that can't be used, by the setting that names "
    "them. Those before stay in use.",
    ("setting",),
)
COUNTERS = tuple(_counters)

# Histograms

MILLISECONDS_TO_HOURS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 14_400.0),
)
ROUND_TRIPS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)

LATENESS = InstrumentSpec(
    "relay.lateness",
    "s",
    "Start of the first delivery, or the push to a list, minus due time, by the clock of Redis.",
    kind=InstrumentKind.HISTOGRAM,
    bounds=MILLISECONDS_TO_HOURS,
)
HANDLER = InstrumentSpec(
    "relay.handler.duration",
    "s",
    "From the hand-out of a delivery to its outcome, as the relay sees them.",
    kind=InstrumentKind.HISTOGRAM,
    bounds=MILLISECONDS_TO_HOURS,
)
SCHEDULE = InstrumentSpec(
    "relay.schedule.duration",
    "s",
    "From a call that schedules to its answer; of a batch, once for each topic in it.",
    kind=InstrumentKind.HISTOGRAM,
    bounds=MILLISECONDS_TO_HOURS,
)
ROUND_TRIP = InstrumentSpec(
    "relay.store.call.duration",
    "s",
    "Round trips of script calls to Redis, with the wait for a connection, by verb.",
    ("verb",),
    InstrumentKind.HISTOGRAM,
    ROUND_TRIPS,
)

HISTOGRAMS = (LATENESS, HANDLER, SCHEDULE, ROUND_TRIP)

# The JSON API, by the semantic conventions for HTTP

HTTP_REQUESTS = InstrumentSpec(
    "http.server.request.duration",
    "s",
    "Requests to the JSON API; without a route those to no path that there is.",
    ("http.request.method", "http.route", "http.response.status_code", "error.type", "url.scheme"),
    InstrumentKind.HISTOGRAM,
    (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
)

OF_HTTP = (HTTP_REQUESTS,)

# Gauges: of a topic, read in Redis, so that each relay tells the same

WAITING = InstrumentSpec(
    "relay.topic.waiting", "{timer}", "Timers that the topic holds, due or not.", kind=InstrumentKind.GAUGE
)
DUE = InstrumentSpec(
    "relay.topic.due", "{timer}", "Timers of the topic that could be claimed now.", kind=InstrumentKind.GAUGE
)
DEAD_LETTERS = InstrumentSpec(
    "relay.topic.dead", "{timer}", "Dead letters that the topic keeps.", kind=InstrumentKind.GAUGE
)
OLDEST_DUE = InstrumentSpec(
    "relay.topic.oldest_due.age",
    "s",
    "For how long the topic's first timer could have been claimed; 0 if none is due.",
    kind=InstrumentKind.GAUGE,
)
NEXT_DUE = InstrumentSpec(
    "relay.topic.next_due.timestamp",
    "s",
    "Unix time from which the topic's first timer can be claimed; missing if it has none.",
    kind=InstrumentKind.GAUGE,
)
FORECAST_DUE = InstrumentSpec(
    "relay.forecast.due",
    "{timer}",
    "Timers in the timeline that can be claimed within the window from now, and not now; a leased one counts "
    "where its lease ends.",
    ("topic", "window"),
    InstrumentKind.GAUGE,
)
FORECAST_COLD = InstrumentSpec(
    "relay.forecast.cold",
    "{timer}",
    "Timers that rest in cold stores and are due within the window from now, or were before; missing where "
    "no sweep has left counts.",
    ("topic", "window"),
    InstrumentKind.GAUGE,
)
PAUSED = InstrumentSpec(
    "relay.topic.paused", "{pause}", "1 while the topic is paused, otherwise 0.", kind=InstrumentKind.GAUGE
)

READY = InstrumentSpec(
    "relay.list.ready", "{entry}", "Entries that wait in the topic's ready list.", kind=InstrumentKind.GAUGE
)
PROCESSING = InstrumentSpec(
    "relay.list.processing",
    "{entry}",
    "Entries that workers keep in the processing list.",
    kind=InstrumentKind.GAUGE,
)
ENTRIES = InstrumentSpec(
    "relay.stream.entries", "{entry}", "Entries that the topic's stream holds.", kind=InstrumentKind.GAUGE
)
GROUP_PENDING = InstrumentSpec(
    "relay.group.pending",
    "{entry}",
    "Entries of the stream that the group was given and has not acknowledged.",
    ("topic", "group"),
    InstrumentKind.GAUGE,
)
GROUP_UNREAD = InstrumentSpec(
    "relay.group.unread",
    "{entry}",
    "Entries of the stream that the group was not given yet; missing where Redis can't tell, as before 7.",
    ("topic", "group"),
    InstrumentKind.GAUGE,
)
GROUP_WAITING = InstrumentSpec(
    "relay.group.waiting",
    "{timer}",
    "Timers of the group that wait for another try.",
    ("topic", "group"),
    InstrumentKind.GAUGE,
)

GROUP_CONSUMERS = InstrumentSpec(
    "relay.group.consumers",
    "{consumer}",
    "Consumers that the group has; one that holds nothing is removed ten minutes after its last word.",
    ("topic", "group"),
    InstrumentKind.GAUGE,
)
GROUP_OVERDUE = InstrumentSpec(
    "relay.group.oldest_retry.age",
    "s",
    "For how long the group's first timer that waits for another try could have been taken; 0 if none could.",
    ("topic", "group"),
    InstrumentKind.GAUGE,
)
JOURNAL_LIMIT = InstrumentSpec(
    "relay.journal.limit",
    "{record}",
    "Records that the topic's journal keeps, as this relay's journal_max_length says.",
    kind=InstrumentKind.GAUGE,
)

# Gauges: of this relay

LEASED = InstrumentSpec(
    "relay.topic.leased",
    "{timer}",
    "Leases of the topic that this relay holds; the sum over all relays is the topic's.",
    kind=InstrumentKind.UP_DOWN_COUNTER,
)
IN_FLIGHT = InstrumentSpec(
    "relay.deliveries.in_flight",
    "{delivery}",
    "Deliveries that an application has and has not settled.",
    kind=InstrumentKind.UP_DOWN_COUNTER,
)
CONSUMERS = InstrumentSpec(
    "relay.consumers",
    "{consumer}",
    "Streams and pushed applications that take the topic from this relay.",
    kind=InstrumentKind.UP_DOWN_COUNTER,
)
CAPACITY = InstrumentSpec(
    "relay.capacity.limit",
    "{delivery}",
    "Deliveries that all applications of this relay can have at a time.",
    (),
    InstrumentKind.UP_DOWN_COUNTER,
)
FREE = InstrumentSpec(
    "relay.capacity.free",
    "{delivery}",
    "How many more deliveries the applications of this relay can take now.",
    (),
    InstrumentKind.UP_DOWN_COUNTER,
)
UNWRITTEN = InstrumentSpec(
    "relay.settlements.unwritten",
    "{settlement}",
    "Ends of deliveries that are not in Redis yet.",
    (),
    InstrumentKind.UP_DOWN_COUNTER,
)
HEARTBEAT = InstrumentSpec(
    "relay.loop.heartbeat.age",
    "s",
    "Time since the loop last turned; the lease keeper's turns at least once a second.",
    ("loop",),
    InstrumentKind.GAUGE,
)
CONNECTED = InstrumentSpec(
    "relay.store.connected",
    "{server}",
    "1 while Redis answers, 0 while it is away; in a Cluster for each node.",
    ("node",),
    InstrumentKind.GAUGE,
)
LAST_ANSWER = InstrumentSpec(
    "relay.store.last_answer.age",
    "s",
    "Time since Redis last answered; it is asked every 5 seconds at least. In a Cluster for each node.",
    ("node",),
    InstrumentKind.GAUGE,
)
CLOCK_STEP = InstrumentSpec(
    "relay.server.clock.step",
    "s",
    "The largest step of the clock of Redis within 15 minutes, less than 0 if back; 0 if there was none. "
    "In a Cluster for each node.",
    ("node",),
    InstrumentKind.GAUGE,
)
CPU = InstrumentSpec(
    "process.cpu.time",
    "s",
    "CPU time that the process has used, by mode.",
    ("cpu.mode",),
    InstrumentKind.COUNTER,
)
MEMORY = InstrumentSpec(
    "process.memory.usage", "By", "Physical memory that the process has.", (), InstrumentKind.UP_DOWN_COUNTER
)

LOG_SUPPRESSED = InstrumentSpec(
    "relay.log.suppressed", "{record}", "Lines left out of the log since their like came too often.", ()
)

POLICY_STALE = InstrumentSpec(
    "relay.policy.stale",
    "{file}",
    "1 while `policy_file` holds something that can't be used, and the policy before it is in force; else 0.",
    (),
    InstrumentKind.GAUGE,
)

OF_TOPICS = (
    *(WAITING, DUE, DEAD_LETTERS, OLDEST_DUE, NEXT_DUE, PAUSED, FORECAST_DUE, FORECAST_COLD),
    *(READY, PROCESSING, ENTRIES, GROUP_PENDING, GROUP_UNREAD, GROUP_WAITING),
    *(GROUP_CONSUMERS, GROUP_OVERDUE, JOURNAL_LIMIT),
)
OF_RELAY = (
    LEASED,
    IN_FLIGHT,
    CONSUMERS,
    CAPACITY,
    FREE,
    UNWRITTEN,
    HEARTBEAT,
    CONNECTED,
    LAST_ANSWER,
    CLOCK_STEP,
    LOG_SUPPRESSED,
    POLICY_STALE,
    CPU,
    MEMORY,
)

ALL = (*COUNTERS, *HISTOGRAMS, *OF_HTTP, *OF_TOPICS, *OF_RELAY)
