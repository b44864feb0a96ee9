-- move/mark.lua: what was taken out of a partition last, and what of that is still on its way.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, rules hash, standings hash, ticks zset,
--         names zset
-- Uses    move
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
-- Returns { name of the last batch or '', and then the batch that is on its way, as lib/move.lua has it }
--         error WRONGKEYTYPE
-- Race    a search that finds nothing to move proves nothing if somebody takes out or brings back meanwhile: the name
--         before it and the name after it tell.

local bad = wrong_type()
if bad then return bad end

return answer({ redis.call('HGET', move, 'last') or '', unpack(batch()) })
