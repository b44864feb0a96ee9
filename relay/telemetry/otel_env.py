"""OpenTelemetry's own variables: whether traces or metrics are exported, and whether the values are valid.

The SDK reads them by itself, but takes a default or fails somewhere deep if one is wrong. It is better to
tell the operator at the start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from relay.core.endpoints.secrets import mask
from relay.core.errors import ServiceError

SAMPLER, SAMPLER_ARG = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
QUEUE, BATCH = "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"
SDK_DISABLED = "OTEL_SDK_DISABLED"

GRPC, HTTP = "grpc", "http/protobuf"
OTLP, CONSOLE, NONE = "otlp", "console", "none"
PULLED = "prometheus"
"""An exporter that the HTTP port provides anyway."""

SAMPLERS = (
    *("always_on", "always_off", "traceidratio"),
    *("parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"),
)
INTERVAL, INTERVAL_DEFAULT = "OTEL_METRIC_EXPORT_INTERVAL", 60_000
"""Milliseconds between two exports of metrics."""
EXEMPLARS = "OTEL_METRICS_EXEMPLAR_FILTER"
TEMPORALITY = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"  # see 0023
LIMITS = (
    *("OTEL_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"),
    *("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT"),
    *("OTEL_SPAN_EVENT_COUNT_LIMIT", "OTEL_SPAN_LINK_COUNT_LIMIT"),
    *("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT"),
)


class WrongVariable(ServiceError):
    """A variable of OpenTelemetry is wrong."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name


@dataclass(frozen=True)
class Signal:
    """A signal that is exported: `TRACES` or `METRICS`. `counts` are its variables that are whole numbers."""

    name: str
    counts: tuple[str, ...]
    known: tuple[str, ...] = (OTLP, CONSOLE)

    @property
    def exporter(self) -> str:
        """The variable that names exporters."""
        return f"OTEL_{self.name}_EXPORTER"

    @property
    def prefixes(self) -> tuple[str, str]:
        """The prefixes of the exporter's variables; the first one takes precedence."""
        return f"OTEL_EXPORTER_OTLP_{self.name}_", "OTEL_EXPORTER_OTLP_"


TRACES = Signal("TRACES", (QUEUE, BATCH, "OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT"))
METRICS = Signal("METRICS", (INTERVAL, "OTEL_METRIC_EXPORT_TIMEOUT"), (OTLP, CONSOLE, PULLED))


def exporters(variables: Mapping[str, str], signal: Signal = TRACES) -> list[str]:
    """Return where a signal goes: OTLP, CONSOLE, or nowhere. Raises `WrongVariable` if one of its variables
    is invalid; the variables are not checked if the signal goes nowhere."""
    given = {name: value.strip() for name, value in variables.items() if value.strip()}
    pointed = any(prefix + "ENDPOINT" in given for prefix in signal.prefixes)
    asked = given.get(signal.exporter, OTLP if pointed else NONE)
    names = [name.strip().lower() for name in asked.split(",") if name.strip()]
    if names == [NONE] or not names:
        return []
    if given.get(SDK_DISABLED, "false").lower() == "true":
        return []
    for name in names:
        if name not in signal.known:
            known = ", ".join(signal.known)
            raise WrongVariable(signal.exporter, f"{name!r} is not known; give {known}, or none alone")
    names = [name for name in dict.fromkeys(names) if name != PULLED]
    if names:
        _check(given, signal, otlp=OTLP in names)
    return names


def protocol(variables: Mapping[str, str], signal: Signal = TRACES) -> str:
    """Return the protocol: GRPC, which is the default, or HTTP."""
    names = [prefix + "PROTOCOL" for prefix in signal.prefixes]
    return next((value.strip().lower() for name in names if (value := variables.get(name, "")).strip()), GRPC)


def unset_empty(variables: MutableMapping[str, str]) -> None:
    """Unset empty variables: they mean the same, but the SDK does not treat them so everywhere."""
    for name in [name for name in variables if name.startswith("OTEL_") and not variables[name].strip()]:
        del variables[name]


def interval(variables: Mapping[str, str]) -> float:
    """Return the seconds between two exports of metrics."""
    return int(variables.get(INTERVAL, "").strip() or INTERVAL_DEFAULT) / 1_000


def exemplars(variables: Mapping[str, str]) -> bool:
    """Whether metrics may name spans."""
    return variables.get(EXEMPLARS, "").strip().lower() != "always_off"


def _check(given: Mapping[str, str], signal: Signal, *, otlp: bool) -> None:
    rules: dict[str, Callable[[str, str], None]] = {
        SDK_DISABLED: _one_of("true", "false"),
        **dict.fromkeys(signal.counts, _whole(1)),
        **(_trace_rules(given) if signal is TRACES else _METRIC_RULES),
    }
    if otlp:
        rules |= _otlp_rules(_protocol(given, signal), signal)
    for name, rule in rules.items():
        if name in given:
            rule(name, given[name])
    queue, batch = int(given.get(QUEUE, 2048)), int(given.get(BATCH, 512))
    if signal is TRACES and batch > queue:
        raise WrongVariable(BATCH, f"{batch} is more than {QUEUE}, {queue}; give at most that")


def _trace_rules(given: Mapping[str, str]) -> dict[str, Callable[[str, str], None]]:
    rules: dict[str, Callable[[str, str], None]] = {
        SAMPLER: _one_of(*SAMPLERS),
        **dict.fromkeys(LIMITS, _whole(0)),
    }
    if given.get(SAMPLER, "").lower().endswith("traceidratio"):
        rules[SAMPLER_ARG] = _ratio
    return rules


def _protocol(given: Mapping[str, str], signal: Signal) -> str:
    for name in (prefix + "PROTOCOL" for prefix in signal.prefixes):
        if name in given:
            _one_of(GRPC, HTTP)(name, given[name])
    return protocol(given, signal)


def _otlp_rules(spoken: str, signal: Signal) -> dict[str, Callable[[str, str], None]]:
    rules: dict[str, Callable[[str, str], None]] = {
        "ENDPOINT": _grpc_endpoint if spoken == GRPC else _http_endpoint,
        "HEADERS": _headers,
        "TIMEOUT": _seconds,
        "COMPRESSION": _one_of("none", "gzip", *(() if spoken == GRPC else ("deflate",))),
        "INSECURE": _one_of("true", "false"),
        **dict.fromkeys(("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE"), _file),
    }
    return {prefix + name: rule for name, rule in rules.items() for prefix in signal.prefixes}


def _one_of(*values: str) -> Callable[[str, str], None]:
    def rule(name: str, value: str) -> None:
        if value.lower() not in values:
            raise WrongVariable(name, f"{value!r} is not known; give one of {', '.join(values)}")

    return rule


def _whole(least: int) -> Callable[[str, str], None]:
    def rule(name: str, value: str) -> None:
        if not (value.isascii() and value.isdigit() and int(value) >= least):
            raise WrongVariable(name, f"{value!r} is not a whole number from {least} on")

    return rule


def _ratio(name: str, value: str) -> None:
    if not 0.0 <= _number(value) <= 1.0:
        raise WrongVariable(name, f"{value!r} is not a number from 0 to 1")


def _seconds(name: str, value: str) -> None:
    if not 0.0 < _number(value) < math.inf:
        raise WrongVariable(name, f"{value!r} is not a number of seconds above 0")


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan


def _http_endpoint(name: str, value: str) -> None:
    try:
        parts = urlsplit(value)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise WrongVariable(name, f"{mask(value)!r} is not a URL; give http://host:port or https://host:port")


def _grpc_endpoint(name: str, value: str) -> None:
    if not value.startswith("unix:"):
        _http_endpoint(name, value if "://" in value else f"http://{value}")


def _headers(name: str, value: str) -> None:
    for number, header in enumerate(value.split(","), 1):
        key, equals, _ = header.partition("=")
        if header.strip() and not (key.strip() and equals):  # the entry is not quoted: it may be a secret
            raise WrongVariable(name, f"entry {number} is not name=value; separate entries by commas")


def _file(name: str, value: str) -> None:
    if not Path(value).is_file():
        raise WrongVariable(name, f"there is no file {value!r}")


_METRIC_RULES: dict[str, Callable[[str, str], None]] = {
    EXEMPLARS: _one_of("always_on", "always_off", "trace_based"),
    TEMPORALITY: _one_of("cumulative", "delta", "lowmemory"),
}
