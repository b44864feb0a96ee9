"""What applications write into PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from relay.outbox.ports import Spelling

_COLUMNS = {
    "occurrence": ":occurrence",
    "action": ":action",
    "topic": ":topic",
    "timer_id": ":timer_id",
    "payload": ":payload",
    "headers": "CAST(:headers AS jsonb)",  # so a text will do, whichever driver takes it
    "content_type": ":content_type",
    "due_time": ":due_time",
    "delay": ":delay",
    "expire_time": ":expire_time",
    "expire_after": ":expire_after",
    "spread": ":spread",
    "seal_with": ":seal_with",
}


def _parameters(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**row, "headers": json.dumps(row["headers"])}


SPELLING = Spelling(
    write=f"INSERT INTO relay_outbox ({', '.join(_COLUMNS)}) VALUES ({', '.join(_COLUMNS.values())})",
    parameters=_parameters,
    prune="""
DELETE FROM relay_inbox WHERE occurrence_id IN (
  SELECT occurrence_id FROM relay_inbox WHERE handled_at < clock_timestamp() - :age ORDER BY handled_at
  LIMIT 10000
)
""",
    older=lambda age: {"age": age},
)
