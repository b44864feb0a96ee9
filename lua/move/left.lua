-- move/left.lua: forget a batch that has arrived.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, rules hash, standings hash, ticks zset,
--         names zset
-- Uses    move
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         name text                 of the batch
-- Returns '1' if it was on its way, else ''
--         error WRONGKEYTYPE
-- Race    a late call finds another batch on its way, which stays.
-- Full    the first write is a delete.

local bad = wrong_type()
if bad then return bad end

return answer(forget(name) and '1' or '')
