-- people/stats.lua: how a topic stands. Never reads more than its ends.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, pause string, cold hash
-- Writes  nothing
-- ARGV    none
-- Returns { now in microseconds, timers, of them due, score of the first or '', lease records,
--           dead letters, id of the oldest dead letter or '', end of the pause in microseconds or '', timers that can be claimed
--           within the next minute, hour and day, and not now; what sweeps have counted in cold stores, see bulk/cold }
--         error WRONGKEYTYPE
-- Race    none: one script sees the keys as of one instant.

local bad = wrong_type()
if bad then return bad end

local now_us = time_us()
local oldest = redis.call('XRANGE', dead, '-', '+', 'COUNT', 1)[1]
local till = redis.call('GET', pause)
local function within(s)
  return redis.call('ZCOUNT', timeline, '(' .. number(now_us / 1e6), number((now_us + s * 1e6) / 1e6))
end
return {
  string.format('%.0f', now_us),
  redis.call('ZCARD', timeline),
  redis.call('ZCOUNT', timeline, '-inf', number(now_us / 1e6)), -- @rule due-counted-by-now
  head(),
  redis.call('HLEN', leases),
  redis.call('XLEN', dead),
  oldest and oldest[1] or '',
  now_us < (tonumber(till or 0) or 0) and till or '',
  within(60),
  within(3600),
  within(86400),
  redis.call('HSCAN', cold, 0, 'COUNT', 1000)[2],
}
