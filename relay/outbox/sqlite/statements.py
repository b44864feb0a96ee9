"""The statements of movers in SQLite, each with a name and a sentence.

`:now` is the instant of the call. SQLite's own clock goes on from one row of a result to the next.
"""

from __future__ import annotations

from collections.abc import Iterable

_LEFT_ALONE = """
  EXISTS (
    SELECT 1 FROM relay_outbox AS held
    WHERE held.topic = one.topic AND held.timer_id = one.timer_id AND held.id <= one.id
      AND held.again_at > :now
  )
"""
"""Whether a row, or an earlier one of its timer, is put aside: the intents of a timer keep their order."""

FREE_LANES = f"""
SELECT lane FROM relay_outbox_lanes AS lanes
WHERE (holder IS NULL OR held_until <= :now)
  AND EXISTS (
    SELECT 1 FROM relay_outbox AS one
    WHERE one.lane = lanes.lane AND one.refused_at IS NULL AND NOT {_LEFT_ALONE}
  )
ORDER BY held_until LIMIT :most
"""
"""Find lanes that have rows and no holder; those that were not held for longest come first. One that was
given back is free whatever its instant says: the clock may have been set back since."""

HOLD_LANE = "UPDATE relay_outbox_lanes SET holder = :holder, held_until = :until WHERE lane = :lane"
"""Hold a lane."""

_OF_A_LANE = f"""
SELECT id FROM relay_outbox AS one WHERE lane = {{lane:d}} AND refused_at IS NULL AND NOT {_LEFT_ALONE}
"""


def read(lanes: Iterable[int]) -> str:
    """Read the oldest rows of lanes, the first one whatever its size.

    SQLite merges the lanes, each in the order of its index, and looks no further than it must. Payloads are
    read of those rows alone that are returned.
    """
    oldest = " UNION ALL ".join(_OF_A_LANE.format(lane=lane) for lane in lanes)
    return f"""
WITH oldest AS MATERIALIZED ({oldest} ORDER BY id LIMIT :rows), sized AS (
  SELECT one.id, sum(length(one.payload)) OVER (ORDER BY one.id) - length(one.payload) AS before
  FROM oldest JOIN relay_outbox AS one ON one.id = oldest.id
)
SELECT one.id, occurrence, action, topic, timer_id, payload, headers, content_type, due_time, delay,
  expire_time, expire_after, spread, seal_with, max(:now - written_at, 0) AS age
FROM sized JOIN relay_outbox AS one ON one.id = sized.id
WHERE before < :size ORDER BY one.id
"""


DELETE = "DELETE FROM relay_outbox WHERE id = ?"
"""Remove a row that a relay has taken."""

HOLD = "UPDATE relay_outbox SET again_at = :again, reason = :reason WHERE id = :id AND refused_at IS NULL"
"""Leave a row alone for a while."""

REFUSE = "UPDATE relay_outbox SET again_at = 9e999, refused_at = :now, reason = :reason WHERE id = :id"
"""Put a row aside until somebody says what is to become of it; 9e999 is infinity."""

FREE = """
UPDATE relay_outbox_lanes SET holder = NULL, held_until = :now WHERE lane = :lane AND holder = :holder
"""
"""Give a lane back, if it is still ours."""

STATUS = """
WITH standing AS MATERIALIZED (
  SELECT refused_at, written_at, EXISTS (
    SELECT 1 FROM relay_outbox AS held WHERE held.topic = one.topic AND held.timer_id = one.timer_id
    AND held.id < one.id AND held.again_at = 9e999
  ) AS blocked
  FROM relay_outbox AS one
)
SELECT
  count(*) FILTER (WHERE refused_at IS NULL AND NOT blocked) AS waiting,
  count(*) FILTER (WHERE refused_at IS NULL AND blocked) AS blocked,
  count(*) FILTER (WHERE refused_at IS NOT NULL) AS refused,
  max(coalesce(:now - min(written_at) FILTER (WHERE refused_at IS NULL AND NOT blocked), 0.0), 0.0) AS lag
FROM standing
"""
"""Count the rows that wait, those that wait behind a refused one, and those that are refused."""

REFUSED = """
SELECT id, action, topic, timer_id, refused_at, reason FROM relay_outbox
WHERE refused_at IS NOT NULL ORDER BY id LIMIT :most
"""
"""Read the refused rows."""

RETRY = """
UPDATE relay_outbox SET again_at = NULL, refused_at = NULL, reason = NULL
WHERE refused_at IS NOT NULL AND (:id IS NULL OR id = :id)
"""
"""Try a refused row again, or all of them."""

DROP = "DELETE FROM relay_outbox WHERE refused_at IS NOT NULL AND (:id IS NULL OR id = :id)"
"""Remove a refused row for good, or all of them."""

VERSION = "PRAGMA data_version"
"""A number that is another one once somebody else has committed."""
