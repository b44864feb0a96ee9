-- subjects/keep.lua: give subjects keys that have none, and say which they have.
--
-- KEYS    subjects hash
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
-- Tail    of each subject its field, and the key that it is to have, sealed; none twice
-- Returns what each has now: a key, or since when it is forgotten
--         error WRONGKEYTYPE
-- Race    two relays that give one subject a key: the first one stands, and both seal with that.
-- Race    somebody has it forgotten: the tombstone stays.

local bad = wrong_type()
if bad then return bad end

local fields = {}
for i = tail, #ARGV, 2 do
  fields[#fields + 1] = ARGV[i]
end
local kept, new = redis.call('HMGET', subjects, unpack(fields)), {}
for n, field in ipairs(fields) do
  if not kept[n] then
    kept[n] = ARGV[tail + 2 * n - 1]
    new[#new + 1], new[#new + 2] = field, kept[n]
  end
end
if #new > 0 then redis.call('HSET', subjects, unpack(new)) end
return answer(kept)
