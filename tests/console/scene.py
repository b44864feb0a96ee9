"""A relay with something to look at: topics, timers of all kinds, deliveries, dead letters, recurrences,
actions."""

from __future__ import annotations

import base64
import json
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from relay.store.codec.envelope import encode
from tests.worlds.relay.processes import Relay
from tests.worlds.relay.stage import Stage

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"

SETTINGS = {
    "RELAY_NAME": "orders-7d9f",
    "RELAY_API__ALLOWED_HOSTS": "relay.test",
    "RELAY_CONSOLE__TRACE_URL": "https://traces.example.com/{trace_id}",
    "RELAY_TOPICS__orders__PARTITIONS": "4",
    "RELAY_TOPICS__orders__LEASE_TTL": "60",
}

HOSTILE_IDS = (
    '<img src=x onerror="window.owned=1">',
    '"><script>window.owned=1</script>',
    "a/../../b?c=d&e=f#g",
    "..",
    "%2e%2e%2f",
    "\u202eright-to-left\u202c",
    "zero\u200bwidth",
    "{{7*7}}${7*7}".replace("{", "(").replace("}", ")"),
)
"""Names that a page could stumble over; braces and control characters are refused as names."""

HOSTILE_PAYLOADS = {
    "html": b'<script>window.owned=1</script><img src=x onerror="window.owned=1">',
    "json": json.dumps({"<b>": "</script><script>window.owned=1</script>", "\u202e": "\u0000"}).encode(),
    "control": bytes(range(1, 32)) + "\u202e\u2066\u200b".encode(),
    "bytes": bytes(range(256)) * 8,
    "large": b"<script>window.owned=1</script>" + b"a" * ((1 << 20) - 64),
    "deep": b"[" * 5_000 + b"]" * 5_000,
}


@dataclass(frozen=True)
class Scene:
    """A relay that has something to show. `call` asks its API in JSON."""

    stage: Stage
    relay: Relay

    @property
    def console(self) -> str:
        return f"http://{self.relay.api}/console"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the API in JSON. Raises `HTTPError`."""
        request = urllib.request.Request(
            f"http://{self.relay.api}/v1/{path}",
            None if body is None else json.dumps(body).encode(),
            {"content-type": "application/json"},
            method=method,
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.load(answer)

    def put(self, topic: str, timer_id: str, **fields: Any) -> Any:
        """Schedule a timer."""
        return self.call("PUT", f"topics/{topic}/timers/{quote(timer_id, safe='')}", fields)

    def put_bytes(self, topic: str, timer_id: str, payload: bytes, **fields: Any) -> Any:
        """Schedule a timer with this payload."""
        return self.put(topic, timer_id, payload=base64.b64encode(payload).decode(), **fields)

    def settle_due(self, topic: str, count: int, outcome: str, error: str = "", **fields: Any) -> None:
        """Receive so many deliveries of a topic, and settle each of them."""
        while count > 0:
            receive = {"wait_sec": 20, "visibility_sec": 30, "max_deliveries": min(count, 100)}
            found = self.call("POST", f"topics/{topic}/deliveries:receive", receive)["deliveries"]
            said = [
                {"token": each["token"], "outcome": outcome, **fields, **_reason(error, number)}
                for number, each in enumerate(found)
            ]
            self.call("POST", f"topics/{topic}/deliveries:settle", {"settlements": said})
            count -= len(found)


def _reason(error: str, number: int) -> dict[str, str]:
    return {"reason": error.format(number)} if error else {}


CROWD = 1_000_000
AT_ONCE = 5_000


def bill(number: int) -> str:
    """The id of a timer of the crowd; it is due `number` milliseconds after `CROWD_DUE`."""
    return f"bill-{number:06}"


CROWD_DUE = 2_208_988_800
"""2040-01-01T00:00:00Z."""


def crowd(stage: Stage) -> None:
    """A million timers of the topic `bills`, as its publishers write them to Redis."""
    envelope = encode(b'{"bill": true}', {"tenant": "north"}, "application/json")
    for start in range(0, CROWD, AT_ONCE):
        ids = {bill(number): CROWD_DUE + number / 1_000 for number in range(start, start + AT_ONCE)}
        with stage.client.pipeline() as pipeline:
            pipeline.zadd("timers_timeline:bills", ids)
            pipeline.hset("timers_payloads:bills", mapping=dict.fromkeys(ids, envelope))
            pipeline.execute()


def set_up(stage: Stage) -> Scene:
    """Start a relay, and let things happen."""
    scene = Scene(stage, stage.relay(settings=SETTINGS))
    crowd(stage)
    orders = [
        {
            "timer_id": f"order-{4000 + number}",
            "message": {"order": 4000 + number},
            "delay_sec": 30 + 97 * number,
        }
        for number in range(400)
    ]
    scene.call("POST", "topics/orders/timers:batch", {"timers": orders})
    order = {"order": 4711, "customer": {"name": "Ada", "vip": True, "tags": ["new", "eu"]}, "total": 129.9}
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "tenant": "north"}
    scene.put("orders", "order-4711", message=order, delay_sec=5400, headers=headers)
    for number in range(12):
        scene.put("mails", f"mail-{number}", message=f"Dear customer {number}", delay_sec=0)
    scene.settle_due("mails", 7, "reject", "SMTP 550: mailbox 'user{}@example.com' unavailable")
    scene.settle_due("mails", 3, "nack", "timed out after {}5 s", retryable=False)
    scene.settle_due("mails", 2, "ack")
    scene.put("mails", "mail-77", message="Dear customer 77", delay_sec=7200)
    rule = {"cron": "0 9 * * 1-5", "zone": "Europe/Berlin"}
    scene.call("PUT", "topics/reports/recurrences/daily", {"rule": rule, "message": {"report": "sales"}})
    scene.call("PUT", "topics/reports/recurrences/minute", {"rule": {"every_sec": 60}, "message": "tick"})
    scene.call("POST", "topics/reports/recurrences/daily:trigger", {"note": "for the audit"})
    scene.call(
        "PUT", "topics/reports/recurrences/weekly", {"rule": {"cron": "30 7 * * 1"}, "message": "week"}
    )
    scene.call("POST", "topics/reports/recurrences/weekly:pause", {"note": "until the move is done"})
    scene.call("PUT", "topics/invoices/timers/inv-1", {"message": "pay", "delay_sec": 86_400})
    scene.call("POST", "topics/invoices:pause", {"note": "the bank is closed"})
    return scene
