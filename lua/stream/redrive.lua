-- stream/redrive.lua: bring dead letters of one group of a stream back to life, due now, for that group alone.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, pause string,
--         stream stream, retries zset, group hash
-- ARGV[1] channel of wake hints
-- ARGV[2] group
-- ARGV    then the letters' ids, each once
-- Returns for each letter 'OK' | 'GONE' (no such letter, or none of this group)
--         error WRONGKEYTYPE
-- Race    two people redrive one letter: the second finds it gone.
-- Full    the first write is a delete: what is kept moves from one key to others.

local bad = wrong_type()
if bad then return bad end

local now_us = time_us()
local gone, moved, kept, reply = {}, {}, {}, {}

local function hex(nonce)
  return (string.gsub(nonce, '.', function(char) return string.format('%02x', string.byte(char)) end))
end

for i = 3, #ARGV do
  local entry = redis.call('XRANGE', KEYS[4], ARGV[i], ARGV[i])[1]
  local letter = {}
  if entry then
    for j = 1, #entry[2], 2 do
      letter[entry[2][j]] = entry[2][j + 1]
    end
  end
  reply[i - 2] = 'GONE'
  if letter.timer_id and letter.envelope and letter.group == ARGV[2] then
    reply[i - 2] = 'OK'
    local name = 'dead/' .. ARGV[i] -- among the group's entries, and like none of them
    gone[#gone + 1] = ARGV[i]
    moved[#moved + 1], moved[#moved + 2] = number(now_us / 1e6), name
    kept[#kept + 1], kept[#kept + 2] =
      name, 'D' .. cmsgpack.pack({
        letter.timer_id,
        now_us / 1e6,
        letter.timer_id .. '/' .. hex(letter.occurrence),
        letter.envelope,
      })
  end
end
if #gone > 0 then
  redis.call('XDEL', KEYS[4], '0-0')
  redis.call('HSET', KEYS[8], unpack(kept))
  redis.call('ZADD', KEYS[7], unpack(moved))
  redis.call('XDEL', KEYS[4], unpack(gone))
  if redis.call('XLEN', KEYS[4]) == 0 then redis.call('DEL', KEYS[4]) end
  hint(ARGV[1], '', number(now_us / 1e6))
end
return answer(reply)
