-- timeline/claim.lua: lease timers whose score has come, the earliest first.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, pause string, marks hash
-- Uses    life, letters, timeline, due_timers
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         limit count               1 to 500
--         lease us
--         nonce nonce               never used before
--         max_bytes bytes           of payloads to stop at (the first timer is taken whatever its size)
--         grace us                  for a timer without payload
--         limits limits             no first delivery is beyond them
--         at_once count             payloads to read at a time at most: what is read in vain is copied all the same
--         behind us                 for which a timer is left to other relays when its score has come
-- Returns { now in microseconds, score of the next timer or '', lease deadline as a score,
--           number parked, { ids removed as orphans },
--           { timer_id, record, envelope, and so on },
--           { timer_id, 'attempts' | 'claims' | 'age' | 'expired', and so on, of those that died },
--           end of the pause in microseconds if that is why due timers were left, else '',
--           1 if a batch that a move has taken out of here lies for a second or more, else 0 }
--         error WRONGKEYTYPE; error PAUSEUNKNOWN: see layout/tell_pause.lua
-- Race    two relays claim at once: a script is atomic, and the score moves to the lease's end,
--         so the second finds nothing due. The nonce is the relay's own, since a counter kept
--         in Redis would repeat after a failover.
-- Race    a publisher that writes its two keys apart: a timer without payload is parked for the
--         grace period and removed only if it still has none.
-- Race    a relay that dies while a handler runs: nobody settles, so the claim after it is what
--         counts the attempt and finds that it was the last one.
-- Full    the first write is a delete, so that a Redis at its maxmemory lets timers drain.

local last = number((now_us - behind) / 1e6)
-- @rule claim-of-due-by-limit
local due = redis.pcall('ZRANGEBYSCORE', timeline, '-inf', last, 'WITHSCORES', 'LIMIT', 0, limit)
local paused = ''
-- An idle poll probes one key, by which a relay that takes the topic for one of one partition learns that it has several.
local is_laid_out = #due == 0 and redis.call('TYPE', leases).ok == 'string' -- @rule idle-polls-hear-of-a-layout
if due.err or #due > 0 or is_laid_out then
  local bad = wrong_type()
  if bad or due.err then return bad or due end
  if here.pause_unknown then return fail('PAUSEUNKNOWN', pause) end -- @rule unknown-pauses-hold
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
    some = as_many_as_fit(enough - bytes, largest, at_once) -- @rule payloads-read-by-room
  end
  return taken
end

local taken = read_payloads(max_bytes)
local deadline = own_score(now_us + lease, 0)
local deadline_text = number(deadline) -- once, and not for each timer
local timers = {}

local function hand_out(id, record, envelope)
  local n, m = #timers, #moved -- what `keep` does, without a call for each timer
  timers[n + 1], timers[n + 2], timers[n + 3] = id, record, envelope
  moved[m + 1], moved[m + 2] = deadline_text, id
  kept[m + 1], kept[m + 2] = id, record
end

local function leased(r)
  r.state, r.nonce, r.score, r.claims = LEASED, nonce, deadline, r.claims + 1 -- @rule claim-sets-lease
  if r.occurrence == NO_NONCE then r.occurrence = nonce end -- @rule occurrence-kept
  return pack(r)
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
      local r = understand(score, records[n])
      local lives, received = claim_one(id, r, envelope, now_us)
      if lives then hand_out(id, leased(r), envelope) end
      if lives and JOURNAL then
        local before = r.occurrence ~= r.nonce and r.occurrence or NO_NONCE -- @rule first-claim-told
        -- @rule lapse-told
        note(CLAIMED, id, occurrence_is(before) .. standing_is(r) .. received_is(received) .. adopted_is(r.adopted))
      end
    end
  end
  bury(now_us)
  write(now_us, nonce, deadline)
end

local lies = here.is_stranded and here.is_stranded() and 1 or 0
return answer({ string.format('%.0f', now_us), head(), deadline_text, parked, orphans, timers, deaths, paused, lies })
