-- lib/reseal/exchange.lua: other contents in the place of those that were read.

-- Put each value of a hash in the place of the one that was read, which stands before it in the tail; return how many are
-- there now. What is not as it was read any more stays.
local function exchange(key)
  local changed = {}
  for i = tail, #ARGV, 3 do
    if redis.call('HGET', key, ARGV[i]) == ARGV[i + 1] then
      changed[#changed + 1], changed[#changed + 2] = ARGV[i], ARGV[i + 2]
    end
  end
  if #changed > 0 then redis.call('HSET', key, unpack(changed)) end
  return #changed / 2
end
