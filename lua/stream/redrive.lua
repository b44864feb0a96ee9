-- stream/redrive.lua: bring dead letters of one group of a stream back to life, due now, for that group alone.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, pause string,
--         stream stream, retries zset, group hash
-- Uses    text
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         channel text              of wake hints
--         group_name text
-- Tail    the letters' ids, each once
-- Returns for each letter 'OK' | 'GONE' (no such letter, or none of this group)
--         error WRONGKEYTYPE
-- Race    two people redrive one letter: the second finds it gone.
-- Full    the first write is a delete: what is kept moves from one key to others.

local bad = wrong_type()
if bad then return bad end

local gone, moved, kept, reply = {}, {}, {}, {}

for n, name in ipairs({ unpack(ARGV, tail) }) do
  local entry = redis.call('XRANGE', dead, name, name)[1]
  local letter = by_name(entry and entry[2] or {})
  reply[n] = 'GONE'
  if letter.timer_id and letter.envelope and letter.group == group_name then
    reply[n] = 'OK'
    local retry = 'dead/' .. name -- among the group's entries, and like none of them
    gone[#gone + 1] = name
    moved[#moved + 1], moved[#moved + 2] = number(now_us / 1e6), retry
    local occurrence = letter.timer_id .. '/' .. hex(letter.occurrence)
    local timer = { letter.timer_id, now_us / 1e6, occurrence, letter.envelope }
    kept[#kept + 1], kept[#kept + 2] = retry, 'D' .. cmsgpack.pack(timer)
  end
end
if #gone > 0 then
  redis.call('XDEL', dead, '0-0')
  redis.call('HSET', group, unpack(kept))
  redis.call('ZADD', retries, unpack(moved))
  redis.call('XDEL', dead, unpack(gone))
  if redis.call('XLEN', dead) == 0 then redis.call('DEL', dead) end
  hint(channel, '', number(now_us / 1e6))
end
return answer(reply)
