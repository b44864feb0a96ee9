"""The statements of movers, each with a name and a sentence."""

from __future__ import annotations

from collections.abc import Iterable

PLANNED = """
SELECT set_config(name, setting, true) FROM (VALUES
  ('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'), ('enable_sort', 'off'),
  ('max_parallel_workers_per_gather', '0'), ('jit', 'off')
) AS planned (name, setting)
"""
"""For one transaction, have the planner look for rows by the indexes, in their order: see 0139.

By its own choice it would at times read and sort the whole backlog for the next 500 rows: what it knows of
the table is from before the backlog came, or from before it went.
"""

_LEFT_ALONE = """
  EXISTS (
    SELECT FROM relay_outbox AS held
    WHERE held.topic = one.topic AND held.timer_id = one.timer_id AND held.id <= one.id
      AND held.again_at > statement_timestamp()
    OFFSET 0
  )
"""
"""Whether a row, or an earlier one of its timer, is put aside: the intents of a timer keep their order.

Race    A row's pause ends while the rows are read. A clock that went on would leave the row out and let the
timer's next one through, so all rows are held against one instant.

`OFFSET 0` has it asked for each row, by its index. Joined, it would be looked for among all that are put
aside while the planner believes that there are none.
"""

TAKE = f"""
WITH free AS MATERIALIZED (
  SELECT lane FROM relay_outbox_lanes AS lanes
  WHERE (holder IS NULL OR held_until <= clock_timestamp())
    AND EXISTS (
      SELECT FROM relay_outbox AS one
      WHERE one.lane = lanes.lane AND one.refused_at IS NULL AND NOT {_LEFT_ALONE}
      OFFSET 0
    )
  ORDER BY held_until LIMIT %(most)s FOR UPDATE SKIP LOCKED
)
UPDATE relay_outbox_lanes AS lanes SET holder = %(holder)s, held_until = clock_timestamp() + %(lease)s
FROM free WHERE lanes.lane = free.lane RETURNING lanes.lane
"""
"""Take lanes that have rows and no holder; those that were not held for longest come first. One that was
given back is free whatever its instant says: the clock may have been set back since."""

_OF_A_LANE = f"""
(SELECT id FROM relay_outbox AS one WHERE lane = {{lane:d}} AND refused_at IS NULL AND NOT {_LEFT_ALONE}
ORDER BY id)
"""


def read(lanes: Iterable[int]) -> str:
    """Read the oldest rows of lanes, the first one whatever its size.

    The lanes are merged, each in the order of its index, and no further than it must be.
    """
    merged = " UNION ALL ".join(_OF_A_LANE.format(lane=lane) for lane in lanes)
    return f"""
SELECT id, occurrence, action, topic, timer_id, payload, headers, content_type, due_time, delay, expire_time,
  expire_after, spread, seal_with, greatest(clock_timestamp() - written_at, interval '0') AS age
FROM (
  SELECT *, sum(octet_length(payload)) OVER (ORDER BY id) - octet_length(payload) AS before
  FROM relay_outbox
  WHERE id = ANY (ARRAY(SELECT id FROM ({merged}) AS merged ORDER BY id LIMIT %(rows)s))
) AS sized
WHERE before < %(bytes)s ORDER BY id
"""


DELETE = "DELETE FROM relay_outbox WHERE id = ANY(%(ids)s)"
"""Remove rows that a relay has taken."""

HOLD = """
UPDATE relay_outbox SET again_at = clock_timestamp() + %(pause)s, reason = %(reason)s
WHERE id = %(id)s AND refused_at IS NULL
"""
"""Leave a row alone for a while."""

REFUSE = """
UPDATE relay_outbox SET again_at = 'infinity', refused_at = clock_timestamp(), reason = %(reason)s WHERE id =
%(id)s
"""
"""Put a row aside until somebody says what is to become of it."""

FREE = """
UPDATE relay_outbox_lanes SET holder = NULL, held_until = clock_timestamp()
WHERE lane = ANY(%(lanes)s) AND holder = %(holder)s
"""
"""Give lanes back, those that are still ours."""

STATUS = """
SELECT
  count(*) FILTER (WHERE refused_at IS NULL AND NOT blocked) AS waiting,
  count(*) FILTER (WHERE refused_at IS NULL AND blocked) AS blocked,
  count(*) FILTER (WHERE refused_at IS NOT NULL) AS refused,
  coalesce(extract(epoch FROM clock_timestamp() - min(written_at)
    FILTER (WHERE refused_at IS NULL AND NOT blocked)), 0)::float8 AS lag
FROM (
  SELECT refused_at, written_at, EXISTS (
    SELECT FROM relay_outbox AS held WHERE held.topic = one.topic AND held.timer_id = one.timer_id AND held.id
    < one.id AND held.again_at = 'infinity'
  ) AS blocked
  FROM relay_outbox AS one
) AS standing
"""
"""Count the rows that wait, those that wait behind a refused one, and those that are refused."""

REFUSED = """
SELECT id, action, topic, timer_id, refused_at, reason FROM relay_outbox
WHERE refused_at IS NOT NULL ORDER BY id LIMIT %(most)s
"""
"""Read the refused rows."""

RETRY = """
UPDATE relay_outbox SET again_at = NULL, refused_at = NULL, reason = NULL
WHERE refused_at IS NOT NULL AND (%(all)s OR id = ANY(%(ids)s))
"""
"""Try refused rows again."""

DROP = "DELETE FROM relay_outbox WHERE refused_at IS NOT NULL AND (%(all)s OR id = ANY(%(ids)s))"
"""Remove refused rows for good."""

WAKE = "SELECT pg_notify('relay_outbox', '')"
"""Wake the movers."""
