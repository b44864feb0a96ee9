"""What applications write into SQLite."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from relay.outbox.ports import Spelling
from relay.outbox.sqlite.values import instant, length

_COLUMNS = (
    *("occurrence", "action", "topic", "timer_id", "payload", "headers", "content_type"),
    *("due_time", "delay", "expire_time", "expire_after", "spread", "seal_with"),
)


def _parameters(row: Mapping[str, Any]) -> Mapping[str, Any]:
    instants = {name: instant(row[name]) for name in ("due_time", "expire_time")}
    lengths = {name: length(row[name]) for name in ("delay", "expire_after", "spread")}
    others = {"occurrence": row["occurrence"].hex, "headers": json.dumps(row["headers"])}
    return {**row, **instants, **lengths, **others}


SPELLING = Spelling(
    write=f"INSERT INTO relay_outbox ({', '.join(_COLUMNS)}) VALUES (:{', :'.join(_COLUMNS)})",
    parameters=_parameters,
    prune="""
DELETE FROM relay_inbox WHERE occurrence_id IN (
  SELECT occurrence_id FROM relay_inbox WHERE handled_at < :before ORDER BY handled_at
  LIMIT 10000
)
""",
    older=lambda age: {"before": time.time() - age.total_seconds()},
)
