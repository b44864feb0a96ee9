-- stream/extend.lua: renew leases on entries of a stream, and record receipts; timeline/extend.lua's counterpart.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, pause string,
--         stream stream, retries zset, group hash
-- Uses    text, dispatch/stream_entry
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         lease us                  0 to record only
--         group_name text
--         consumer text
-- Tail    of each entry: its id, how often it was delivered, '1' if received, else ''
-- Returns { lease deadline as a score, then for each 'OK' | 'STALE' | 'GONE' }
--         error WRONGKEYTYPE; error DUPLICATE <entry>
-- Race    a renewal that meets the ACK of the same lease: the deliveries stay, so either order is right.
-- Full    the first write is a delete, so that a Redis at its maxmemory still renews.

local bad = wrong_type()
if bad then return bad end

local ids, seen = {}, {}
for i = tail, #ARGV, 3 do
  local id = ARGV[i]
  if seen[id] then return fail('DUPLICATE', id) end
  seen[id] = i
  ids[#ids + 1] = id
end
local waiting = redis.call('ZMSCORE', retries, unpack(ids))
local raws = redis.call('HMGET', group, unpack(ids))
local held, kept, reply = {}, {}, { number((now_us + lease) / 1e6) }
local there = not redis.pcall('XPENDING', stream, group_name).err

for n, id in ipairs(ids) do
  local at, owner, deliveries, _ = seen[id], nil, nil, nil
  if there then
    owner, _, deliveries = pending(id)
  end
  if not owner then
    reply[n + 1] = 'GONE'
  elseif owner ~= consumer or deliveries ~= tonumber(ARGV[at + 1]) or waiting[n] then -- @rule group-fence-on-renewal
    reply[n + 1] = 'STALE'
  else
    reply[n + 1] = 'OK'
    held[#held + 1] = id
    local k = known(raws[n]) -- `extended` of lib/life.lua has a score to raise; here the server keeps idle times
    if ARGV[at + 2] ~= '' and k.received == 0 then
      k.received = 1 -- @rule stream-receipt-recorded
      kept[#kept + 1], kept[#kept + 2] = id, known_as(k)
    end
  end
end

if #kept > 0 then
  redis.call('HDEL', group, NO_NONCE)
  redis.call('HSET', group, unpack(kept))
end
if #held > 0 and lease > 0 then
  table.insert(held, 'JUSTID') -- @rule renewal-counts-no-delivery
  redis.call('XCLAIM', stream, group_name, consumer, 0, unpack(held)) -- @rule renewal-renews
end
return answer(reply)
