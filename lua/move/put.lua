-- move/put.lua: take a batch in where the move takes it.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, rules hash, standings hash, ticks zset,
--         names zset
-- Uses    move
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         channel text              of wake hints
--         name text                 of the batch
-- Tail    field and value of each of its timers, recurrences or letters; see lib/move.lua
-- Returns { what has become of the batch: 'PUT' | 'VOID': it goes back | 'OVER': a later one has come since;
--           and, if this call has put it, the ids that its letters' entries have here }
--         error WRONGKEYTYPE; error OOM from Redis, with nothing written, since ZADD or XADD is the first write, unless this
--         is the first call by its layout; the same of what Redis may refuse of the journal
-- Race    a batch that comes twice, or late: its timers may have been cancelled or delivered since. Names tell.

local bad = wrong_type()
if bad then return bad end

local as = arrived_as(name)
if as then return answer({ as }) end -- @rule refusals-stay
local before = head()
local entries = insert(tail, name, ARRIVED)
redis.call('HSET', move, 'arrived', name, 'as', 'PUT')
hint(channel, before, head())
return answer({ 'PUT', unpack(entries) })
