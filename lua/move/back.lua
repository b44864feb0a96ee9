-- move/back.lua: take a batch in again that was refused where the move takes it.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, rules hash, standings hash, ticks zset,
--         names zset
-- Uses    move
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         channel text              of wake hints
--         name text                 of the batch
-- Tail    field and value of each of its timers, recurrences or letters; see lib/move.lua
-- Returns '1' if it was on its way, else ''
--         error WRONGKEYTYPE
-- Race    a late call finds another batch on its way, or none: its timers have gone their way since.
-- Full    the first write is a delete.

local bad = wrong_type()
if bad then return bad end

local before = head()
if JOURNAL then -- @rule return-asked-before-it-is-forgotten
  may_append()
  may_add()
end
if not forget(name) then return answer('') end
insert(tail, name, RETURNED)
hint(channel, before, head())
return answer('1')
