-- schedule.lua: store timers, replacing those of the same id.
--
-- KEYS    timeline, payloads, leases
-- ARGV[1] channel of wake hints
-- ARGV    then four for each timer: timer_id, 'at' | 'in', score | delay in microseconds, envelope
-- Returns { now in microseconds, then for each timer: 'CREATED' | 'REPLACED', score }
--         error WRONGKEYTYPE; error OUTOFRANGE <index from 0> if a delay ends after 9999;
--         error OOM from Redis, with nothing written, since ZADD is the first write
-- Race    a timer that is replaced while a relay delivers it: its record goes, so the relay's
--         token is worth nothing and its late ACK can't remove the new intent.

local bad = wrong_type()
if bad then return bad end

local now_us = time_us()
local ids, scores, stored, reply, seen = {}, {}, {}, {}, {}
for i = 2, #ARGV, 4 do
  local n = #ids + 1
  local score = tonumber(ARGV[i + 2])
  if ARGV[i + 1] == 'in' then score = (now_us + score) / 1e6 end
  if score > 253402300799 then return fail('OUTOFRANGE', tostring(n - 1)) end
  ids[n] = ARGV[i]
  scores[2 * n - 1], scores[2 * n] = number(score), ARGV[i]
  stored[2 * n - 1], stored[2 * n] = ARGV[i], ARGV[i + 3]
end

local before = head()
local found = redis.call('ZMSCORE', KEYS[1], unpack(ids))
redis.call('ZADD', KEYS[1], unpack(scores))
redis.call('HDEL', KEYS[3], unpack(ids))
redis.call('HSET', KEYS[2], unpack(stored))
hint(ARGV[1], before, head())

reply[1] = string.format('%.0f', now_us)
for n, id in ipairs(ids) do
  reply[2 * n] = (found[n] or seen[id]) and 'REPLACED' or 'CREATED'
  reply[2 * n + 1] = scores[2 * n - 1]
  seen[id] = true
end
return reply
