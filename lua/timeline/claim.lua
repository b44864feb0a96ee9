-- timeline/claim.lua: lease timers whose score has come, the earliest first.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, pause string, marks hash
-- Uses    letters
-- ARGV    limit count               1 to 500
--         lease us
--         nonce nonce               never used before
--         max_bytes bytes           of payloads to stop at (the first timer is taken whatever its size)
--         grace us                  for a timer without payload
--         limits limits             no first delivery is beyond them
--         at_once count             payloads to read at a time at at_once: what is read in vain is copied all the same
-- Returns { now in microseconds, score of the next timer or '', lease deadline as a score,
--           number parked, { ids removed as orphans },
--           { timer_id, record, envelope, and so on },
--           { timer_id, 'attempts' | 'claims' | 'age' | 'expired', and so on, of those that died },
--           end of the pause in microseconds if that is why due timers were left, else '' }
--         error WRONGKEYTYPE
-- Race    two relays claim at once: a script is atomic, and the score moves to the lease's end,
--         so the second finds nothing due. The nonce is the relay's own, since a counter kept
--         in Redis would repeat after a failover.
-- Race    a publisher that writes its two keys apart: a timer without payload is parked for the
--         grace period and removed only if it still has none.
-- Race    a relay that dies while a handler runs: nobody settles, so the claim after it is what
--         counts the attempt and finds that it was the last one.
-- Full    the first write is a delete, so that a Redis at its maxmemory lets timers drain.

local now_us = time_us()
-- @rule claim-of-due-by-limit
local due = redis.pcall('ZRANGEBYSCORE', timeline, '-inf', number(now_us / 1e6), 'WITHSCORES', 'LIMIT', 0, limit)
local paused = ''
if due.err or #due > 0 then -- an idle poll stays at three commands
  local bad = wrong_type()
  if bad or due.err then return bad or due end
  local till = redis.call('GET', pause)
  if now_us < (tonumber(till or 0) or 0) then -- @rule pause-holds
    due, paused = {}, till
  end
end
local ids, scores, envelopes = {}, {}, {}
for n = 1, #due / 2 do
  ids[n], scores[n] = due[2 * n - 1], tonumber(due[2 * n])
end

-- Read payloads until there are enough bytes; answers how many timers that takes. The first one alone, and then as many
-- at a time as there is room for if none is larger than those before: so one command serves many timers, and fewer than
-- `at_once` are read in vain.
local function read_payloads(enough)
  local taken, bytes, largest, some = 0, 0, 1, 1 -- @rule first-payload-alone
  while taken < #ids do
    for _, envelope in ipairs(redis.call('HMGET', payloads, unpack(ids, taken + 1, math.min(taken + some, #ids)))) do
      local size = envelope and #envelope or 0
      bytes, largest = bytes + size, math.max(largest, size)
      if taken > 0 and bytes > enough then return taken end -- @rule claim-bounded-by-bytes
      taken = taken + 1
      envelopes[taken] = envelope
    end
    some = math.max(1, math.min(at_once, math.floor((enough - bytes) / largest))) -- @rule payloads-read-by-room
  end
  return taken
end

local taken = read_payloads(max_bytes)
local deadline = own_score(now_us + lease, 0)
local deadline_text = number(deadline) -- once, and not for each timer
local moved, kept, ended, letters, orphans, timers, deaths, parked = {}, {}, {}, {}, {}, {}, {}, 0

local function note_moved(id, r, received, nonce)
  if r.state == PARKED then
    return note(
      KIND_PARKED,
      id,
      nonce_is(nonce) .. standing_is(r) .. score_is(r.score) .. received_is(received) .. adopted_is(r.adopted)
    )
  end
  local before = r.occurrence ~= r.nonce and r.occurrence or NO_NONCE -- @rule first-claim-told
  -- @rule lapse-told
  note(CLAIMED, id, occurrence_is(before) .. standing_is(r) .. received_is(received) .. adopted_is(r.adopted))
end

local function keep(id, score, record)
  local n = #moved
  moved[n + 1], moved[n + 2] = score, id
  kept[n + 1], kept[n + 2] = id, record
end

local function hand_out(id, record, envelope)
  keep(id, deadline_text, record)
  local n = #timers
  timers[n + 1], timers[n + 2], timers[n + 3] = id, record, envelope
end

local function leased(r)
  r.state, r.nonce, r.score, r.claims = LEASED, nonce, deadline, r.claims + 1 -- @rule claim-sets-lease
  if r.occurrence == NO_NONCE then r.occurrence = nonce end -- @rule occurrence-kept
  return pack(r)
end

local function park(id, r)
  parked = parked + 1
  r.state, r.nonce, r.score = PARKED, NO_NONCE, own_score(now_us + grace, r.due) -- @rule parking-ends-lease
  keep(id, r.score, pack(r))
end

local function remove_orphan(id, r)
  orphans[#orphans + 1] = id
  ended[#ended + 1] = id
  if JOURNAL then note(ORPHANED, id, due_is(r.due)) end -- @rule orphan-noted
end

-- `received` and `nonce` are those of the lease that ran out.
local function die(id, r, envelope, reason, received, nonce)
  deaths[#deaths + 1], deaths[#deaths + 2] = id, reason
  ended[#ended + 1] = id
  r.received = received
  local kept_too = limits.keep and (reason ~= 'expired' or limits.keep_expired) -- @rule letters-by-policy
  letters[#letters + 1] = { id, r, envelope, reason, '', nonce, kept_too }
end

-- What becomes of a timer, whatever has happened to it.
local function claim_one(id, r, envelope)
  if not envelope and r.state == PARKED then return remove_orphan(id, r) end -- @rule parked-once
  local received, nonce = r.received, r.nonce
  if r.state == LEASED then -- its relay is gone or was cut off
    r.attempts = r.attempts + r.received -- @rule lapse-counts-receipt
    r.suspect = math.max(r.suspect, r.received) -- @rule lapse-raises-suspicion
  end
  r.received = 0 -- @rule receipt-ends-with-lease
  local expired = r.expires > 0 and now_us / 1e6 >= r.expires -- @rule expiry-by-the-clock
  local reason = expired and 'expired' or fate(r, now_us, limits) -- @rule claim-asks-for-ends
  if envelope and reason then return die(id, r, envelope, reason, received, nonce) end -- @rule only-with-payload-dies
  if envelope then
    hand_out(id, leased(r), envelope)
  else
    park(id, r)
  end
  if JOURNAL then note_moved(id, r, received, nonce) end
end

-- Most timers are new: nothing has happened to them that could be their end, and their records differ in the due time
-- alone. So these are cut from one.
local new = leased(fresh(0, 0))
local before_due, after_due = string.sub(new, 1, DUE_FROM - 1), string.sub(new, DUE_TO + 1)

if taken > 0 then
  local records = redis.call('HMGET', leases, unpack(ids, 1, taken))
  for n = 1, taken do
    local id, score, envelope = ids[n], scores[n], envelopes[n]
    if not records[n] and envelope and score >= 0 and whole_us(score) and not JOURNAL then -- @rule new-timers-by-score
      hand_out(id, before_due .. struct.pack('<d', score) .. after_due, envelope) -- @rule new-timer-keeps-due-time
    else
      claim_one(id, understand(score, records[n]), envelope)
    end
  end
  local names = bury(letters, now_us)
  if JOURNAL then
    note_deaths(letters, names)
    append_always(now_us, nonce, deadline) -- @rule claim-noted
  end
  if #ended > 0 then
    redis.call('HDEL', leases, unpack(ended))
    redis.call('HDEL', payloads, unpack(ended))
    redis.call('ZREM', timeline, unpack(ended))
    mark(ended) -- @rule claim-marks-deaths
  else -- @rule claim-begins-with-a-delete
    redis.call('HDEL', leases, ids[1])
  end
  if #moved > 0 then
    redis.call('ZADD', timeline, unpack(moved))
    redis.call('HSET', leases, unpack(kept))
  end
end

return answer({ string.format('%.0f', now_us), head(), deadline_text, parked, orphans, timers, deaths, paused })
