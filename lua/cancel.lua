-- cancel.lua: remove timers, whatever their state.
--
-- KEYS    timeline, payloads, leases
-- ARGV    timer_ids
-- Returns for each timer 'CANCELLED' | 'GONE'; an id that comes twice is cancelled once
--         error WRONGKEYTYPE
-- Race    a timer that is cancelled while a relay delivers it: its record goes too, so that what
--         is scheduled under that id later can't be settled by the old delivery.

local bad = wrong_type()
if bad then return bad end

local scores = redis.call('ZMSCORE', KEYS[1], unpack(ARGV))
redis.call('HDEL', KEYS[3], unpack(ARGV))
redis.call('HDEL', KEYS[2], unpack(ARGV)) -- of timers that are not there too: a payload alone is an orphan
redis.call('ZREM', KEYS[1], unpack(ARGV))

local reply, seen = {}, {}
for n, id in ipairs(ARGV) do
  reply[n] = scores[n] and not seen[id] and 'CANCELLED' or 'GONE'
  seen[id] = true
end
return reply
