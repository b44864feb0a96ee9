-- recur/get.lua: read recurrences.
--
-- KEYS    timeline zset, rules hash, standings hash, ticks zset
-- Uses    recurring
-- Writes  nothing
-- ARGV    none
-- Tail    their ids
-- Returns { now in microseconds; then of each what `say_recurrence` says }
--         error WRONGKEYTYPE
-- Race    as of recur/due.lua

local bad = wrong_type()
if bad then return bad end

local reply = { string.format('%.0f', time_us()) }
for i = tail, #ARGV do
  say_recurrence(reply, ARGV[i])
end
return reply
