"""The OpenAPI document, which `tools/openapi.py` writes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from relay.web.operations import Answer, ApiCall, Calls, Operation

FILE = Path(__file__).with_name("openapi.json")
PATH = "/v1/openapi.json"


@cache
def document() -> dict[str, Any]:
    """Return the document."""
    value: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return value


async def openapi(_calls: Calls, _call: ApiCall) -> Answer:
    """Answer with the document."""
    return Answer(document())


OPERATIONS = (Operation("GET", PATH, openapi, "This API, as OpenAPI 3.1.", None, has_own_time=True),)
