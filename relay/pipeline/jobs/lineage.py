"""What a job read and wrote, as events of OpenLineage (https://openlineage.io/spec/2-0-2/OpenLineage.json):
START, then COMPLETE, FAIL or ABORT."""

from __future__ import annotations

import json
import os
import re
import urllib.request
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import relay
from relay.core.errors import InvalidField, ServiceError
from relay.pipeline.jobs.job import Summary

PATIENCE = 5.0
"""Seconds for a request. A job does not wait longer for whoever collects its events."""
PRODUCER = f"https://pypi.org/project/relay-timers/{relay.__version__}"
SPEC = "https://openlineage.io/spec"
EVENT = f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
ENDPOINT = "/api/v1/lineage"
TOPIC = "topic"
"""Stands for a topic of Redis where other datasets have the name of their option."""

ROWS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("schedule", "SOURCE"): ("written", "rejected", "skipped_by_ledger", "skipped_alive", "cold"),
    ("schedule", "--rejects"): ("rejected",),
    ("schedule", "--cold"): ("cold",),
    ("schedule", TOPIC): ("written",),
    ("sweep", TOPIC): ("loaded",),
    ("restore", TOPIC): ("loaded",),
    ("snapshot", "OUT"): ("timers",),
    ("journal", "--lake"): ("records",),
    ("audit", "--lake"): ("records",),
    ("migrate-cold", "NEW"): ("rows",),
}
"""Which counts of a job's summary are rows of which of its datasets; several are added up. With several
topics the rows of each are not known."""
BOTH = {("sweep", "--cold")}
"""What a job reads as well as writes."""
_OBJECTS = ("s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs")


@dataclass(frozen=True, slots=True)
class Dataset:
    """A namespace and a name, as OpenLineage's naming conventions have them, and by which option it came."""

    option: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Datasets:
    """What a job reads, and what it writes."""

    read: Sequence[Dataset] = ()
    written: Sequence[Dataset] = ()


def at_path(option: str, path: str) -> Dataset:
    """Return the dataset of a path or a URL, without credentials that the URL may have."""
    parts = urlsplit(path)
    if parts.scheme in ("", "file"):
        return Dataset(option, "file", str(Path(parts.path if parts.scheme else path).absolute()))
    user, _, host = parts.netloc.rpartition("@")
    place = parts.netloc if user and ":" not in user else host  # abfss://container@account
    scheme = re.sub(r"^s3[an]$", "s3", parts.scheme)
    name = parts.path.strip("/") if parts.scheme in _OBJECTS else re.sub(r"//[^/]*@", "//", parts.path)
    return Dataset(option, f"{scheme}://{place}", name or "/")


def in_redis(url: str, topics: Sequence[str]) -> list[Dataset]:
    """Return a dataset for each topic, or one named `*` for topics that nobody named. The URL's credentials
    and options are left out."""
    parts = urlsplit(url)
    namespace = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
    return [Dataset(TOPIC, namespace, topic) for topic in topics or ("*",)]


def datasets(
    job: str, read: Mapping[str, str], written: Mapping[str, str], redis: Datasets = Datasets()
) -> Datasets:
    """Return the datasets of paths by the names of their options, and those of Redis."""
    into = [at_path(option, path) for option, path in written.items() if option != "--checkpoint"]
    out = [at_path(option, path) for option, path in read.items() if not option.startswith("sealing.")]
    out += [each for each in into if (job, each.option) in BOTH]
    return Datasets([*out, *redis.read], [*into, *redis.written])


@dataclass(frozen=True, slots=True)
class Lineage:
    """Sends events to a URL, or appends them to a file, a line each. `warn` is called with what
    could not be sent."""

    target: str = field(repr=False)
    warn: Callable[[str], None]

    @classmethod
    def to(cls, target: str, warn: Callable[[str], None]) -> Lineage:
        """Take a URL, or the path of a file that can be written. Raises `InvalidField`."""
        scheme = urlsplit(target).scheme
        if scheme in ("http", "https"):
            return cls(target if urlsplit(target).path.strip("/") else target.rstrip("/") + ENDPOINT, warn)
        if "://" in target:
            raise InvalidField("lineage", f"has the scheme {scheme}; give a file, or a URL of http or https")
        try:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            Path(target).open("a", encoding="utf-8").close()
        except OSError as failure:
            raise InvalidField("lineage", f"can't be written to {target}: {failure.strerror}") from None
        return cls(target, warn)

    @contextmanager
    def of(self, job: str, found: Datasets) -> Generator[Callable[[Summary], None]]:
        """Send START, and at the end of the block how the job ended. The block hands over its summary."""
        run = _TracedRun(job, found)
        summaries: list[Summary] = []
        self._send(run.event("START"))
        try:
            yield summaries.append
        except ServiceError as failure:
            self._send(run.event("FAIL", error=str(failure)))
            raise
        except BaseException as failure:
            kind = "ABORT" if isinstance(failure, KeyboardInterrupt) else "FAIL"
            self._send(run.event(kind, error=type(failure).__name__))
            raise
        (summary,) = summaries
        if summary.problems:
            self._send(run.event("FAIL", summary, error="; ".join(summary.problems)))
        else:
            self._send(run.event("COMPLETE", summary))

    def _send(self, event: Mapping[str, Any]) -> None:
        text = json.dumps(event, ensure_ascii=False)
        try:
            if urlsplit(self.target).scheme in ("http", "https"):
                _post(self.target, text)
            else:
                with Path(self.target).open("a", encoding="utf-8") as file:
                    file.write(f"{text}\n")
        except OSError as failure:  # urllib's errors are
            why = failure.strerror or getattr(failure, "reason", None) or failure
            self.warn(f"--lineage: the event {event['eventType']} was not sent: {why}")


def _post(url: str, text: str) -> None:
    """Send one event. `OPENLINEAGE_API_KEY` goes along as a bearer's token, and never to another place that
    the answer names."""
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("OPENLINEAGE_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    asked = urllib.request.Request(url, text.encode(), headers, method="POST")
    with urllib.request.build_opener(_NoRedirects).open(asked, timeout=PATIENCE):
        pass


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow nothing: the answer is then an error with its code."""


class _TracedRun:
    """One run of a job, and its events."""

    def __init__(self, job: str, found: Datasets) -> None:
        self._job, self._found = job, found
        self._id = str(uuid.uuid4())
        self._topics = [each.name for each in (*found.read, *found.written) if each.option == TOPIC]

    def event(self, kind: str, summary: Summary | None = None, error: str = "") -> dict[str, Any]:
        facets: dict[str, Any] = {}
        if parent := _parent():
            facets["parent"] = _facet("1-2-0", "ParentRunFacet", **parent)
        if error:
            facets["errorMessage"] = _facet(
                "1-0-1", "ErrorMessageRunFacet", message=error, programmingLanguage="PYTHON"
            )
        told = summary if summary is not None and not summary.dry_run else None
        topic = self._topics[0] if len(self._topics) == 1 and self._topics != ["*"] else ""
        return {
            "eventTime": datetime.now(UTC).isoformat(),
            "producer": PRODUCER,
            "schemaURL": EVENT,
            "eventType": kind,
            "run": {"runId": self._id, "facets": facets},
            "job": {
                "namespace": os.environ.get("OPENLINEAGE_NAMESPACE", "relay"),
                "name": ".".join(filter(None, ("pipeline", self._job, topic))),
                "facets": {},
            },
            "inputs": [self._dataset(each, told) for each in self._found.read],
            "outputs": [self._dataset(each, told, output=True) for each in self._found.written],
        }

    def _dataset(self, each: Dataset, summary: Summary | None, *, output: bool = False) -> dict[str, Any]:
        rows = self._rows(each, summary)
        side = "output" if output else "input"
        name = "OutputStatisticsOutputDatasetFacet" if output else "InputStatisticsInputDatasetFacet"
        version = "1-0-2" if output else "1-0-0"
        facets = {} if rows is None else {f"{side}Statistics": _facet(version, name, rowCount=rows)}
        return {"namespace": each.namespace, "name": each.name, "facets": {}, f"{side}Facets": facets}

    def _rows(self, each: Dataset, summary: Summary | None) -> int | None:
        if summary is None or (each.option == TOPIC and len(self._topics) != 1):
            return None
        names = ROWS.get((self._job, each.option), ())
        counts = [summary.counts[name] for name in names if name in summary.counts]
        return sum(counts) if counts else None


def _facet(version: str, name: str, **fields: Any) -> dict[str, Any]:
    return {
        "_producer": PRODUCER,
        "_schemaURL": f"{SPEC}/facets/{version}/{name}.json#/$defs/{name}",
        **fields,
    }


def _parent() -> dict[str, Any] | None:
    """Return the run that this one is a part of, as a scheduler names it in `OPENLINEAGE_PARENT_ID`:
    namespace, job and run between slashes."""
    parts = os.environ.get("OPENLINEAGE_PARENT_ID", "").split("/")
    try:
        run = str(uuid.UUID(parts[-1]))
    except ValueError:
        return None
    if len(parts) < 3:
        return None
    return {"run": {"runId": run}, "job": {"namespace": "/".join(parts[:-2]), "name": parts[-2]}}
