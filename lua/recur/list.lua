-- recur/list.lua: read one page of a partition's recurrences, in the order of their ids' bytes.
--
-- KEYS    timeline zset, rules hash, standings hash, ticks zset, names zset
-- Uses    recurring
-- Writes  nothing
-- ARGV    limit count               recurrences to read
--         first text                where the page begins and ends, as ZRANGE takes them by BYLEX
--         last text
--         max_bytes bytes           of rules after which the page ends
-- Returns { now in microseconds; '1' if there is more, else ''; then of each what `say_recurrence` says }
--         error WRONGKEYTYPE
-- Race    recurrences that come and go between two pages: a page begins behind the id at which the last one ended, so what
--         stays is seen once.

local bad = wrong_type()
if bad then return bad end

local found = redis.call('ZRANGE', names, first, last, 'BYLEX', 'LIMIT', 0, limit + 1) -- one more than asked for
local reply, bytes = { string.format('%.0f', time_us()), '' }, 0
for n, id in ipairs(found) do
  if n > limit or bytes > max_bytes then
    reply[2] = '1'
    break
  end
  bytes = bytes + say_recurrence(reply, id)
end
return reply
