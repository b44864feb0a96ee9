-- timeline/run.lua: make timers due now.
--
-- KEYS    timeline zset, payloads hash, leases hash
-- ARGV    channel text              of wake hints
-- Tail    timer_ids
-- Returns for each timer 'OK' | 'IN_FLIGHT' (a relay delivers it; nothing changed) | 'GONE'
--         error WRONGKEYTYPE
-- Race    a relay that claims the timer at the same moment: whoever comes second sees what the first
--         has written, so that a lease is never taken away by this.

local bad = wrong_type()
if bad then return bad end

local now_us = time_us()
local before = head()
local ids = { unpack(ARGV, tail) }
local scores = redis.call('ZMSCORE', timeline, unpack(ids))
local moved, kept, reply = {}, {}, {}
for n, id in ipairs(ids) do
  local r = scores[n] and understand(tonumber(scores[n]), redis.call('HGET', leases, id))
  if not r then
    reply[n] = 'GONE'
  elseif r.state == LEASED then -- @rule run-spares-leases
    reply[n] = 'IN_FLIGHT'
  else
    reply[n] = 'OK'
    local due = r.due
    r.due = math.min(r.due, now_us / 1e6) -- @rule run-lowers-due-time
    -- @rule run-unparks-off-grid
    r.state, r.score, r.approximate = PENDING, own_score(now_us, r.due), 0 -- parked before: anew, if need be
    if JOURNAL then
      note(RUN, id, standing_is(r) .. score_is(r.score) .. previous_due_is(due) .. adopted_is(r.adopted))
    end
    moved[#moved + 1], moved[#moved + 2] = number(r.score), id
    kept[#kept + 1], kept[#kept + 2] = id, pack(r)
  end
end
if #moved > 0 then
  if JOURNAL then append_always(now_us) end -- @rule run-noted
  -- @rule run-begins-with-a-delete
  redis.call('HDEL', leases, kept[1]) -- a delete first, so that a Redis at its maxmemory takes the rest
  redis.call('ZADD', timeline, unpack(moved))
  redis.call('HSET', leases, unpack(kept))
  hint(channel, before, head()) -- @rule run-hints
end
return answer(reply)
