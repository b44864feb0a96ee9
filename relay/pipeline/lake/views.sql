-- Views of the journal's lake, for Spark SQL and for DuckDB. They ask a table or view `journal`, which is the lake.
-- DuckDB needs this before: CREATE MACRO unix_micros(moment) AS epoch_us(moment)

-- A row for each change of a timer. `moment` is by the clock of Redis.
CREATE OR REPLACE TEMP VIEW changes AS
SELECT topic, timer_id, j.at AS moment, hour, coalesce(partition, 0) AS part, number, kind, due, previous_due, expires,
       attempts, claims, received, nonce, occurrence, reason, refused, dead_id, principal
FROM journal AS j
WHERE timer_id IS NOT NULL AND kind NOT IN ('GAP', 'EMPTY', 'TICKED', 'CHANGED');

-- A row for each lease. `relay` is that of the relay's process which claimed it. `received` says whether the application
-- had it for certain. `outcome` is the kind of the record that ended it, null where it lapsed or still runs. `late_us`
-- stands at first claims only: the microseconds from the due time to the claim. `held_us` is how long the lease lasted.
CREATE OR REPLACE TEMP VIEW leases AS
SELECT topic, timer_id, relay, occurrence, claimed_at, hour, due, attempts, claims,
       received, outcome, ended_at,
       CASE WHEN attempts = 0 AND claims = 1 THEN unix_micros(claimed_at) - unix_micros(due) END AS late_us,
       unix_micros(ended_at) - unix_micros(claimed_at) AS held_us
FROM (
  SELECT topic, timer_id, substr(hex(nonce), 1, 16) AS relay,
         max(CASE WHEN kind = 'CLAIMED' THEN coalesce(hex(occurrence), hex(nonce)) END) AS occurrence,
         max(CASE WHEN kind = 'CLAIMED' THEN moment END) AS claimed_at,
         max(CASE WHEN kind = 'CLAIMED' THEN hour END) AS hour,
         max(CASE WHEN kind = 'CLAIMED' THEN due END) AS due,
         max(CASE WHEN kind = 'CLAIMED' THEN attempts END) AS attempts,
         max(CASE WHEN kind = 'CLAIMED' THEN claims END) AS claims,
         max(CASE WHEN kind IN ('RECEIVED', 'ACKED', 'NACKED', 'RESCHEDULED') OR kind <> 'CLAIMED' AND received
             THEN 1 ELSE 0 END) = 1 AS received,
         max(CASE WHEN kind NOT IN ('CLAIMED', 'RECEIVED', 'EXTENDED') THEN kind END) AS outcome,
         max(CASE WHEN kind NOT IN ('CLAIMED', 'RECEIVED', 'EXTENDED') THEN moment END) AS ended_at
  FROM changes
  WHERE nonce IS NOT NULL AND kind NOT IN ('STALE', 'GONE')
  GROUP BY topic, timer_id, nonce
) AS ends
WHERE claimed_at IS NOT NULL;

-- A row for each timer, with its last change. `living` is false once that has ended it, and `moves` counts how often it
-- got another due time.
CREATE OR REPLACE TEMP VIEW timers AS
SELECT topic, timer_id, min(moment) AS began,
       max(CASE WHEN nth = 1 THEN moment END) AS moment,
       max(CASE WHEN nth = 1 THEN kind END) AS kind,
       max(CASE WHEN nth_due = 1 THEN due END) AS due,
       max(CASE WHEN nth = 1 AND kind NOT IN
         ('ACKED', 'DEAD', 'EXPIRED', 'CANCELLED', 'ORPHANED', 'TAKEN', 'PROMOTED') THEN 1 ELSE 0 END) = 1 AS living,
       count(CASE WHEN kind IN ('REPLACED', 'RESCHEDULED') THEN 1 END) AS moves,
       count(CASE WHEN kind = 'CLAIMED' THEN 1 END) AS leases
FROM (
  SELECT *, row_number() OVER (PARTITION BY topic, timer_id ORDER BY moment DESC, number DESC) AS nth,
         row_number() OVER (PARTITION BY topic, timer_id, due IS NULL ORDER BY moment DESC, number DESC) AS nth_due
  FROM changes
  WHERE kind NOT IN ('STALE', 'GONE', 'PURGED', 'REPAIRED')
) AS numbered
GROUP BY topic, timer_id;
