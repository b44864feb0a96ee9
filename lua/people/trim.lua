-- people/trim.lua: remove the oldest dead letters, beyond what is to be kept.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         count count               letters that stay at most, 0: any number
--         age us                    that they may have, 0: any
-- Returns how many were removed
--         error WRONGKEYTYPE
-- Race    none: one script sees the stream as of one instant.

local bad = wrong_type()
if bad then return bad end

if JOURNAL then may_append() end -- @rule append-asked-before-trim
local removed = 0
if age > 0 then -- @rule trim-by-age
  local oldest = string.format('%.0f', math.max(math.floor((now_us - age) / 1000), 0))
  removed = redis.call('XTRIM', dead, 'MINID', oldest)
end
if count > 0 then removed = removed + redis.call('XTRIM', dead, 'MAXLEN', count) end -- @rule trim-counted
if JOURNAL and removed > 0 then
  local oldest = redis.call('XRANGE', dead, '-', '+', 'COUNT', 1)[1]
  note(TRIMMED, '', dead_id_is(oldest and oldest[1]) .. count_is(removed))
  append(now_us) -- @rule trim-noted
end
-- @rule trim-leaves-no-empty-stream
if removed > 0 and redis.call('XLEN', dead) == 0 then redis.call('DEL', dead) end
return answer(removed)
