-- lib/life.lua: what an event does to a timer, once for timelines and for groups of streams. It decides, and touches no
-- key: lib/timeline.lua and lib/dispatch/stream_entry.lua load and store. relay/core/life.py says the same in Python. From ack to
-- reschedule the events stand in lib/outcomes.lua: a claim takes no time for them.
--
-- A timer is r, with its state, attempts, claims, received, suspect, due and expires. An event changes r and answers
-- what the timer is from then on.
--
--   event       from        an attempt counts     then
--   claim       PENDING     -                     LEASED; PARKED without a payload; DEAD by expiry or a limit
--               LEASED      if it was received    the same: the lease is over, and nobody has settled
--               PARKED      -                     the same, but ORPHANED if the payload is still missing
--   receipt     LEASED      -                     LEASED, received; it extends, too
--   extend      LEASED      -                     LEASED until a lease from now
--   ack         LEASED      -                     gone: the scripts do that by themselves, at once for many
--   nack        LEASED      always                PENDING, or DEAD by a limit
--   release     LEASED      if it was received    PENDING, or DEAD by a limit if one counted
--   recall      LEASED      if it was received    PENDING: timeline/recall.lua, where a clock has stepped back
--   reject      LEASED      always                DEAD
--   reschedule  LEASED      -                     RESCHEDULED: a new intent, which nothing is known of
--   run         all but     -                     PENDING, due now
--               LEASED
--   redrive     DEAD        none any more         PENDING, due now, the same occurrence

-- Why a timer is not to be delivered (again) at a whole microsecond; nil if it is.
local function fate(r, us, limits)
  if r.attempts >= limits.attempts then return 'attempts' end -- @rule attempts-limited
  if r.claims >= limits.claims then return 'claims' end -- @rule claims-limited
  -- @rule age-limited
  if limits.age > 0 and r.attempts > 0 and us - math.floor(r.due * 1e6 + 0.5) > limits.age then return 'age' end
end

-- Whether a timer goes alone from now on whose lease was lost: its relay died, or its stream broke. `counts` is 1 if that
-- is an attempt, else 0. What is lost for the first time comes again with its neighbours. Where no receipt came, no attempt
-- tells of a loss before, but claims do.
local function suspected(r, counts, limits) -- see 0003
  local before = counts == 1 and r.attempts or r.claims - 1 -- @rule losses-without-receipt-by-claims
  if before > 0 then return 1 end -- @rule lost-again-goes-alone
  if r.attempts + counts >= limits.attempts - 1 then return 1 end -- @rule last-attempt-goes-alone
  return r.suspect -- @rule suspects-stay-suspects
end

-- A claim at a timer whose score has come. `unreadable`: nobody can be given it. Answers why it died, too.
local function claimed(r, now_us, limits, has_payload, unreadable)
  if not has_payload and r.state == PARKED then return 'ORPHANED' end -- @rule parked-once
  if r.state == LEASED then -- its relay is gone or was cut off
    if r.elsewhere then return 'ELSEWHERE' end -- @rule newer-records-left-alone
    if r.received == 1 then r.suspect = suspected(r, 1, limits) end -- @rule lapse-raises-suspicion
    r.attempts = r.attempts + r.received -- @rule lapse-counts-receipt
  end
  r.received = 0 -- @rule receipt-ends-with-lease
  if not has_payload then -- @rule only-with-payload-dies
    r.state = PARKED
    return 'PARKED'
  end
  if r.expires > 0 and now_us / 1e6 >= r.expires then return 'DEAD', 'expired' end -- @rule expiry-by-the-clock
  if unreadable then return 'DEAD', 'unreadable' end -- @rule unreadable-die
  local reason = fate(r, now_us, limits) -- @rule claim-asks-for-ends
  if reason then return 'DEAD', reason end
  return 'LEASED'
end

-- A receipt, or a renewal until `until_us`. A lease from before the clock stepped back is cut to what it is by the clock of
-- now. Where even its due time lies behind that, the score can say nothing but that somebody renews: another one each time.
-- See timeline/recall.lua.
local function extended(r, received, until_us) -- see 0088
  if received then r.received = 1 end -- @rule receipt-recorded
  if r.due * 1e6 > until_us then until_us = math.floor(r.score * 1e6) + 1 end -- @rule renewal-shows-life
  r.score = own_score(until_us, r.due) -- @rule renewal-keeps-nonce
end

-- Make it due now; nil, or the word that says why not.
local function ran(r, now_us)
  if r.state == LEASED then return 'IN_FLIGHT' end -- @rule run-spares-leases
  r.due = math.min(r.due, now_us / 1e6) -- @rule run-lowers-due-time
  r.state, r.approximate = PENDING, 0 -- @rule run-unparks
end

-- A new life by its attempts and its age, and the same occurrence: whoever keeps what has been done by occurrence must
-- not do it twice.
local function redriven(now_us, occurrence)
  local r = fresh(now_us / 1e6, 0)
  r.score, r.occurrence = own_score(now_us, r.due), occurrence -- @rule redrive-keeps-occurrence-off-grid
  return r
end
