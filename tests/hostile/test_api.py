"""Requests made from the OpenAPI document: each answer is as the document says, and none is 500.

See 0109 for why these are our own requests, and not those of schemathesis.
"""

from __future__ import annotations

import http.client
from collections import Counter

import pytest

from relay.core.errors import MOST_BYTES
from relay.web.document import document
from tests.hostile.conftest import GROUP
from tests.hostile.requests import Asked, operations, requests
from tests.hostile.targets import INTERNALS
from tests.web.described import Reply, reply
from tests.worlds.relay.processes import Relay

pytestmark = [pytest.mark.slow, GROUP]

INPUTS = 60


def answer(connection: http.client.HTTPConnection, asked: Asked) -> Reply:
    """Held to the document by `reply`."""
    connection.request(asked.method, asked.path, asked.body, dict(asked.headers))
    got = connection.getresponse()
    content = got.read()
    if got.headers.get("connection") == "close":
        connection.close()
    return reply(asked.method, asked.path, got.status, dict(got.headers.items()), content)


@pytest.mark.parametrize(("method", "path"), operations())
def test_every_operation_answers_as_its_document_says(relay: Relay, method: str, path: str) -> None:
    """Whether the request is right or has a fault, in its path, its query, its headers or its body."""
    statuses: Counter[int] = Counter()
    connection = http.client.HTTPConnection(relay.api, timeout=60.0)
    count = 12 if path.endswith(":receive") else INPUTS  # it waits for half a second at least
    try:
        for asked in requests(method, path, document()["paths"][path][method], count):
            got = answer(connection, asked)
            statuses[got.status] += 1
            assert got.status < 500 or got.status in (503, 507), (asked, got)
            if got.status >= 400:
                detail = got.value["detail"]
                assert not INTERNALS.search(detail), (asked, detail)
                assert len(detail.encode()) <= MOST_BYTES + 100, (asked, detail)
    finally:
        connection.close()
    assert relay.probe("/healthz/ready") == 200
    assert statuses.keys() - {500}, statuses
