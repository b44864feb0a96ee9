"""A real Prometheus, and its promtool: Debian's package `prometheus`."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.missing import need
from tests.servers import free_port
from tests.worlds.waiting import eventually


def promtool(*arguments: str, text: str = "") -> None:
    """Run it, and fail with what it says unless it is content."""
    done = subprocess.run(
        [need("promtool"), *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=300.0,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "", done.stderr


class Prometheus:
    """One that scrapes every second; ask by PromQL."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str, **query: str) -> Any:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with opener.open(url, timeout=60.0) as answer:
            return json.load(answer)["data"]

    def ready(self) -> bool:
        try:
            return bool(self.get("status/runtimeinfo"))
        except OSError:
            return False

    def ask(self, query: str) -> dict[frozenset[tuple[str, str]], float]:
        """The value of each series, by its labels but for those that the scrape adds."""
        found = self.get("query", query=query)["result"]
        added = {"__name__", "instance", "job"}
        return {
            frozenset((name, value) for name, value in each["metric"].items() if name not in added): float(
                each["value"][1]
            )
            for each in found
        }

    def one(self, query: str) -> float | None:
        """The one value that the answer has; None if it has none."""
        values = list(self.ask(query).values())
        assert len(values) <= 1, f"{query}: {values}"
        return values[0] if values else None

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]


@contextmanager
def scraping(targets: Sequence[str], rules: Path | None = None) -> Iterator[Prometheus]:
    """A Prometheus on loopback that scrapes these addresses."""
    directory = Path(tempfile.mkdtemp(prefix="relay-prometheus-"))
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [{"job_name": "relay", "static_configs": [{"targets": list(targets)}]}],
        "rule_files": [] if rules is None else [str(rules)],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    arguments = [
        need("prometheus"),
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    prometheus = Prometheus(address)
    try:
        eventually(lambda: process.poll() is not None or prometheus.ready(), "Prometheus is ready")
        assert process.poll() is None, (directory / "log").read_text()[-2000:]
        yield prometheus
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)
