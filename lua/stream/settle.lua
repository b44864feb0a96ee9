-- stream/settle.lua: end leases on entries of a stream; timeline/settle.lua's counterpart.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, pause string,
--         stream stream, retries zset, group hash
-- Uses    letters, stream_group
-- ARGV    channel text              of wake hints
--         lease us
--         group_name text
--         consumer text
--         limits limits             of the topic's policy
-- Tail    of each entry: its id, how often it was delivered, verb, detail, as timeline/settle.lua has them
-- Returns { score of what comes next or '', then for each 'OK' | 'STALE' | 'GONE', or the reason of its death }
--         error WRONGKEYTYPE; error DUPLICATE <entry>; error BADVERB <verb>
-- Race    a late ACK of an entry that another consumer has taken, or that was delivered once more: the fence
--         compares consumer and deliveries before any write; see lib/stream_group.lua.
-- Race    two outcomes for one delivery: after the first the entry is not pending, or waits for another try.
-- Full    the first write is a delete, so that a Redis at its maxmemory lets timers drain.

local bad = wrong_type()
if bad then return bad end

local now_us = time_us()
local ids, seen = {}, {}
for i = tail, #ARGV, 4 do
  local id = ARGV[i]
  if seen[id] then return fail('DUPLICATE', id) end
  seen[id] = i
  ids[#ids + 1] = id
end
local waiting = redis.call('ZMSCORE', retries, unpack(ids))
local raws = redis.call('HMGET', group, unpack(ids))
local acked, moved, kept, letters, reply = {}, {}, {}, {}, {}
local there = redis.pcall('XPENDING', stream, group_name)
there = not there.err -- else the stream or the group is gone, and so are all its entries

local soonest

local function move(id, score)
  moved[#moved + 1], moved[#moved + 2] = number(score), id
  if not soonest or score < tonumber(soonest) then soonest = number(score) end
end

local function forget(id)
  acked[#acked + 1] = id
  return 'OK'
end

-- Of an entry that was trimmed under its delivery nothing is left that could come again.
local function lost(id)
  forget(id)
  return 'GONE'
end

local function entry_at(id)
  local entry = redis.call('XRANGE', stream, id, id)[1]
  return entry and read_entry(entry)
end

local function die(id, k, deliveries, reason, text)
  forget(id)
  local it = limits.keep and entry_at(id)
  letters[#letters + 1] = { it or {}, k, deliveries - k.unsent, reason, text, it and true or false }
  return reason
end

local function again(id, k, deliveries, score, text)
  k.received, k.deliveries = 0, deliveries -- @rule last-delivery-known
  if text then
    local it = entry_at(id)
    if not it then return lost(id) end
    local reason =
      fate({ attempts = k.attempts, claims = deliveries - k.unsent, due = it.due }, math.floor(score * 1e6), limits)
    if reason then return die(id, k, deliveries, reason, text) end -- @rule stream-return-asks-for-ends
  end
  move(id, score)
  kept[#kept + 1], kept[#kept + 2] = id, known_as(k)
  return 'OK'
end

local verbs = {}

function verbs.ack(id) return forget(id) end

function verbs.nack(id, k, deliveries, idle, detail)
  local delay, text = cut(detail)
  k.attempts, k.suspect = k.attempts + 1, 0 -- @rule stream-nack-counts
  -- @rule lease-end-reckoned
  local wait = delay ~= '' and tonumber(delay) or math.max(lease - idle * 1000, 0)
  return again(id, k, deliveries, (now_us + wait) / 1e6, text) -- @rule stream-nack-waits
end

function verbs.release(id, k, deliveries, _, detail)
  local flags, delay = cut(detail)
  local received = k.received == 1 or string.find(flags, 'r', 1, true)
  if received then k.attempts = k.attempts + 1 end -- @rule stream-release-counts-receipt
  if string.find(flags, 'u', 1, true) then k.unsent = k.unsent + 1 end -- @rule unsent-counted
  k.suspect = string.find(flags, 's', 1, true) and 1 or 0
  local score = (now_us + (received and tonumber(delay) or 0)) / 1e6
  return again(id, k, deliveries, score, received and 'the delivery ended without an outcome')
end

function verbs.reject(id, k, deliveries, _, detail)
  local reason, text = cut(detail)
  k.attempts = k.attempts + 1
  return die(id, k, deliveries, reason, text)
end

-- A new intent, of this group alone: the entry is acknowledged, so that the stream can be trimmed, and the timer
-- waits beside it.
function verbs.reschedule(id, _, _, _, detail)
  local when, envelope = cut(detail)
  local score = math.min(instant(when, now_us), LATEST)
  local it = entry_at(id)
  if not it then return lost(id) end -- @rule dropped-is-lost
  move(id, score)
  -- @rule stream-reschedule-takes-payload
  local stored = cmsgpack.pack({ it.timer_id, score, '', envelope ~= '' and envelope or it.envelope })
  kept[#kept + 1], kept[#kept + 2] = id, 'D' .. stored
  seen[id] = 'again'
  return forget(id) -- @rule stream-reschedule-acknowledges
end

for n, id in ipairs(ids) do
  local at = seen[id]
  local verb = ARGV[at + 2]
  if not verbs[verb] then return fail('BADVERB', verb) end
  local owner, idle, deliveries
  if there then
    owner, idle, deliveries = pending(id)
  end
  if not owner then
    reply[n + 1] = 'GONE'
  elseif owner ~= consumer or deliveries ~= tonumber(ARGV[at + 1]) or waiting[n] then -- @rule group-fence
    reply[n + 1] = 'STALE'
  else
    reply[n + 1] = verbs[verb](id, known(raws[n]), deliveries, idle, ARGV[at + 3])
  end
end

redis.call('HDEL', group, NO_NONCE) -- @rule stream-settle-begins-with-a-delete
bury_here(letters, now_us)
local gone = {}
for _, id in ipairs(acked) do
  if seen[id] ~= 'again' then gone[#gone + 1] = id end
end
if #gone > 0 then redis.call('HDEL', group, unpack(gone)) end
if #moved > 0 then
  redis.call('HSET', group, unpack(kept))
  redis.call('ZADD', retries, unpack(moved))
end
if #acked > 0 then redis.call('XACK', stream, group_name, unpack(acked)) end -- @rule ends-acknowledged

reply[1] = next_for_us()
if soonest then hint(channel, '', soonest) end
return answer(reply)
