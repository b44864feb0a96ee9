-- claim.lua: lease timers whose score has come, the earliest first.
--
-- KEYS    timeline, payloads, leases, dead, pause
-- ARGV[1] limit, 1 to 500
-- ARGV[2] lease in microseconds
-- ARGV[3] nonce, 16 bytes, never used before
-- ARGV[4] payload bytes to stop at (the first timer is taken whatever its size)
-- ARGV[5] grace in microseconds for a timer without payload
-- ARGV[6] to ARGV[10] the policy's limits, see `read_limits`
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
local due = redis.pcall('ZRANGEBYSCORE', KEYS[1], '-inf', number(now_us / 1e6), 'WITHSCORES', 'LIMIT', 0, ARGV[1])
local paused = ''
if due.err or #due > 0 then -- an idle poll stays at three commands
  local bad = wrong_type()
  if bad or due.err then return bad or due end
  local till = redis.call('GET', KEYS[5])
  if now_us < (tonumber(till or 0) or 0) then due, paused = {}, till end
end
local ids, scores, bytes = {}, {}, 0
for i = 1, #due, 2 do
  bytes = bytes + redis.call('HSTRLEN', KEYS[2], due[i])
  if i > 1 and bytes > tonumber(ARGV[4]) then break end
  ids[#ids + 1] = due[i]
  scores[#scores + 1] = tonumber(due[i + 1])
end
local orphans, timers, deaths, parked = {}, {}, {}, 0
local deadline = own_score(now_us + tonumber(ARGV[2]), 0)

local function note_moved(id, r, received, nonce)
  if r.state == PARKED then
    return note(LEFT, id, nonce_is(nonce) .. standing_is(r) .. score_is(r.score) .. received_is(received)
      .. adopted_is(r.adopted))
  end
  local before = r.occurrence ~= r.nonce and r.occurrence or NO_NONCE
  note(CLAIMED, id, occurrence_is(before) .. standing_is(r) .. received_is(received) .. adopted_is(r.adopted))
end

if #ids > 0 then
  local limits = read_limits(6)
  local records = redis.call('HMGET', KEYS[3], unpack(ids))
  local envelopes = redis.call('HMGET', KEYS[2], unpack(ids))
  local moved, kept, ended, dead = {}, {}, {}, {}
  for n, id in ipairs(ids) do
    local r = understand(scores[n], records[n])
    if not envelopes[n] and r.state == PARKED then
      orphans[#orphans + 1] = id
      ended[#ended + 1] = id
      if JOURNAL then note(ORPHANED, id, due_is(r.due)) end
    else
      local received, nonce = r.received, r.nonce -- of the lease that ran out
      if r.state == LEASED then -- its relay is gone or was cut off
        r.attempts = r.attempts + r.received
        r.suspect = math.max(r.suspect, r.received)
      end
      r.received = 0
      local expired = r.expires > 0 and now_us / 1e6 >= r.expires
      local reason = expired and 'expired' or fate(r, now_us, limits)
      if envelopes[n] and reason then
        deaths[#deaths + 1], deaths[#deaths + 2] = id, reason
        ended[#ended + 1] = id
        local keep = limits.keep and (not expired or limits.keep_expired)
        r.received = received
        dead[#dead + 1] = { id, r, envelopes[n], reason, '', nonce, keep }
      else
        if envelopes[n] then
          r.state, r.nonce, r.score, r.claims = LEASED, ARGV[3], deadline, r.claims + 1
          if r.occurrence == NO_NONCE then r.occurrence = ARGV[3] end
        else
          parked = parked + 1
          r.state, r.nonce, r.score = PARKED, NO_NONCE, own_score(now_us + tonumber(ARGV[5]), r.due)
        end
        local record = pack(r)
        moved[#moved + 1], moved[#moved + 2] = r.score, id
        kept[#kept + 1], kept[#kept + 2] = id, record
        if envelopes[n] then
          local m = #timers
          timers[m + 1], timers[m + 2], timers[m + 3] = id, record, envelopes[n]
        end
        if JOURNAL then note_moved(id, r, received, nonce) end
      end
    end
  end
  local names = bury(dead, now_us)
  if JOURNAL then
    note_deaths(dead, names)
    append_always(now_us, ARGV[3], deadline)
  end
  if #ended > 0 then
    redis.call('HDEL', KEYS[3], unpack(ended))
    redis.call('HDEL', KEYS[2], unpack(ended))
    redis.call('ZREM', KEYS[1], unpack(ended))
  else
    redis.call('HDEL', KEYS[3], ids[1])
  end
  if #moved > 0 then
    redis.call('ZADD', KEYS[1], unpack(moved))
    redis.call('HSET', KEYS[3], unpack(kept))
  end
end

return answer({ string.format('%.0f', now_us), head(), number(deadline), parked, orphans, timers, deaths, paused })
