-- stream/claimed.lua: find what a claim has leased whose reply was lost, if it was the consumer's latest one;
-- timeline/claimed.lua's counterpart.
--
-- KEYS    timeline zset, stream stream, retries zset, group hash, latest string
--           latest   of this consumer: a MessagePack array { nonce, lease deadline as a score, first new entry or '', last one,
--                    { entry, deliveries, and so on, of those that were taken again } }
-- Uses    text, dispatch/stream_entry
-- Writes  nothing
-- ARGV    nonce nonce               of the claim
--         group_name text
--         consumer text
-- Returns { now in microseconds, lease deadline as a score or '', { what `told` of lib/dispatch/stream_entry.lua tells of each timer } }
--         error WRONGKEYTYPE
-- Race    other things happen to an entry before the relay asks: it lapses and is claimed once more, here or elsewhere, is
--         acknowledged by hand, or trimmed. The fence tells: see lib/dispatch/stream_entry.lua.
-- Race    leases that run out at this moment: the next round over what is pending takes the entries.

local LOOK = 500 -- entries; a claim takes no more

local bad = wrong_type()
if bad then return bad end

local now_us = time_us()
local timers, deadline = {}, ''
local raw = redis.call('GET', latest)
local claim = raw and cmsgpack.unpack(raw) or {}

-- Tell of an entry, if it is pending with us and was delivered as often as the claim has said.
local function find(id, owner, deliveries, by_claim)
  if owner ~= consumer or deliveries ~= by_claim then return end -- @rule found-by-the-fence
  if redis.call('ZSCORE', retries, id) then return end -- @rule found-unless-it-waits
  local entry = redis.call('XRANGE', stream, id, id)[1]
  -- @rule found-in-the-stream
  if entry then told(timers, id, deliveries, read_entry(entry), known(redis.call('HGET', group, id))) end
end

-- @rule latest-claim-by-nonce
if claim[1] == nonce and tonumber(claim[2]) * 1e6 > now_us and not redis.pcall('XPENDING', stream, group_name).err then
  local first, last, again = claim[3], claim[4], claim[5]
  deadline = claim[2]
  for n = 1, #again, 2 do
    local owner, _, deliveries = pending(again[n])
    find(again[n], owner, deliveries, again[n + 1])
  end
  if first ~= '' then -- what lies between, and was new then, was new to us
    for _, each in ipairs(redis.call('XPENDING', stream, group_name, first, last, LOOK, consumer)) do
      find(each[1], each[2], each[4], 1)
    end
  end
end
return { string.format('%.0f', now_us), deadline, timers }
