-- reseal/contents.lua: put contents of timers in the place of those that were read.
--
-- KEYS    payloads hash
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
-- Tail    of each timer its id, the content that was read, and the one that it is to have
-- Returns how many have it now
--         error WRONGKEYTYPE
-- Race    a timer that ends, or gets another content, after it was read: what stands is not what was read, and stays.
--         Leases and due times are other keys, so a delivery that is under way never notices.

local bad = wrong_type()
if bad then return bad end

local changed = {}
for i = tail, #ARGV, 3 do
  if redis.call('HGET', payloads, ARGV[i]) == ARGV[i + 1] then
    changed[#changed + 1], changed[#changed + 2] = ARGV[i], ARGV[i + 2]
  end
end
if #changed > 0 then redis.call('HSET', payloads, unpack(changed)) end
return answer(#changed / 2)
