-- recur/due.lua: read the recurrences that are to be looked at now.
--
-- KEYS    timeline zset, rules hash, standings hash, ticks zset
-- Uses    recurring
-- Writes  nothing
-- ARGV    limit count               recurrences to read
--         max_bytes bytes           of rules after which the reply ends
--         skip count                to pass over, of the first ones
-- Returns { now in microseconds; when to look at the next one behind these, '' if at none; then of each what
--           `say_recurrence` says }
--         error WRONGKEYTYPE
-- Race    what was read may be changed before it is turned: recur/turn.lua compares.

local bad = wrong_type()
if bad then return bad end

local now, bytes = time_us(), 0
local found = redis.call('ZRANGE', ticks, skip, skip + limit, 'WITHSCORES') -- one more than asked for
local reply, following = { string.format('%.0f', now), '' }, ''
for i = 1, #found, 2 do
  local look = tonumber(found[i + 1])
  if look > now or i > 2 * limit or bytes > max_bytes then -- @rule due-recurrences-only
    following = look < math.huge and string.format('%.0f', look) or ''
    break
  end
  bytes = bytes + say_recurrence(reply, found[i])
end
reply[2] = following
return reply
