-- move/void.lua: refuse a batch forever, for which there is no room, so that it can go back.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, rules hash, standings hash, ticks zset,
--         names zset
-- Uses    move
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         name text                 of the batch
-- Returns what has become of the batch, as move/put.lua
--         error WRONGKEYTYPE
-- Race    somebody else puts the batch at the same time: whoever comes first decides, and the other hears of it.
-- Full    the first write is a delete.

local bad = wrong_type()
if bad then return bad end

local as = arrived_as(name)
if as then return answer(as) end -- @rule arrivals-stay
redis.call('HDEL', move, 'arrived')
redis.call('HSET', move, 'arrived', name, 'as', 'VOID') -- @rule refusals-are-remembered
return answer('VOID')
