-- move/scan.lua: read a part of the ids of a partition's timers, in no order.
--
-- KEYS    timeline zset, payloads hash, leases hash
-- Writes  nothing
-- ARGV    cursor text               '0' at first
--         step count                timers to look at, about
--         match text                a glob that the ids have to match, '*' for all
-- Returns { the server's run_id, next cursor, '0' at the end, then timer_ids, of which some may come twice }
--         error WRONGKEYTYPE
-- Race    the slot goes to another server, or a replica takes over, between two parts: a cursor means nothing there, and
--         timers would be passed over. The run_id is another one then, and whoever reads begins again.

local bad = wrong_type()
if bad then return bad end

local page = redis.call('ZSCAN', timeline, cursor, 'MATCH', match, 'COUNT', step)
local reply = { string.match(redis.call('INFO', 'server'), 'run_id:(%x+)'), page[1] } -- @rule scans-name-their-server
for i = 1, #page[2], 2 do
  reply[#reply + 1] = page[2][i]
end
return reply
