-- stream/settle.lua: end leases on entries of a stream; timeline/settle.lua's counterpart.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, pause string,
--         stream stream, retries zset, group hash
-- Uses    text, life, outcomes, letters, dispatch/stream_entry, dispatch/stream_group
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         channel text              of wake hints
--         lease us
--         group_name text
--         consumer text
--         limits limits             of the topic's policy
-- Tail    of each entry: its id, how often it was delivered, verb, detail, as timeline/settle.lua has them
-- Returns { score of what comes next or '', then for each 'OK' | 'STALE' | 'GONE', or the reason of its death }
--         error WRONGKEYTYPE; error DUPLICATE <entry>; error BADVERB <verb>
-- Race    a late ACK of an entry that another consumer has taken, or that was delivered once more: the fence
--         compares consumer and deliveries before any write; see lib/dispatch/stream_entry.lua.
-- Race    two outcomes for one delivery: after the first the entry is not pending, or waits for another try.
-- Race    a clock that steps back: no retry is before the due time.
-- Full    the first write is a delete, so that a Redis at its maxmemory lets timers drain.

local bad = wrong_type()
if bad then return bad end

local ids, seen = {}, {}
for i = tail, #ARGV, 4 do
  local id = ARGV[i]
  if seen[id] then return fail('DUPLICATE', id) end
  seen[id] = i
  ids[#ids + 1] = id
end
local waiting = redis.call('ZMSCORE', retries, unpack(ids))
local raws = redis.call('HMGET', group, unpack(ids))
local acked, moved, kept, died, reply = {}, {}, {}, {}, {}
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

-- An entry that was trimmed under its delivery leaves nothing that could come again.
local function lost(id)
  forget(id)
  return 'GONE'
end

local function entry_at(id)
  local entry = redis.call('XRANGE', stream, id, id)[1]
  return entry and read_entry(entry)
end

-- The due time of the entry; false where nothing is left of it.
local function find(k)
  local it = entry_at(k.entry)
  k.due = it and it.due
  return it
end

-- The due time of an entry, if a relay gave it; else 0. A relay never adds an entry before its due time, and the entry's id
-- tells when it was added, in milliseconds. Others may write any due time, which must not hold up another try.
local function own_due(id, due)
  local added_ms = tonumber((string.match(id, '^%d+')))
  return due and due * 1000 <= added_ms + 1 and due or 0 -- @rule foreign-due-holds-up-nothing
end

-- A new intent, of this group alone: the entry is acknowledged, so that the stream can be trimmed, and the timer
-- waits beside it.
local function wait_again(id, score, envelope)
  local it = entry_at(id)
  if not it then return lost(id) end -- @rule dropped-is-lost
  move(id, score)
  -- @rule stream-reschedule-takes-payload
  local stored = cmsgpack.pack({ it.timer_id, score, '', envelope ~= '' and envelope or it.envelope })
  kept[#kept + 1], kept[#kept + 2] = id, 'D' .. stored
  seen[id] = 'again'
  return forget(id) -- @rule stream-reschedule-acknowledges
end

-- Store what an outcome makes of a delivery.
local function end_lease(id, verb, detail, k, deliveries, idle)
  if verb == 'ack' then return forget(id) end
  k.entry, k.claims, k.deliveries = id, deliveries - k.unsent, deliveries -- @rule last-delivery-known
  k.ends_us = now_us + math.max(lease - idle * 1000, 0) -- @rule lease-end-reckoned
  local became, what, text = outcomes[verb](k, now_us, detail, limits, find)
  if became == 'RESCHEDULED' then return wait_again(id, what, text) end
  if became == 'LOST' then return lost(id) end
  if became == 'DEAD' then
    local it = limits.keep and entry_at(id)
    died[#died + 1] = { it or {}, k, what, text, it and true or false }
    forget(id)
    return what
  end
  k.unsent = deliveries - k.claims -- @rule unsent-counted
  if not k.due then find(k) end
  move(id, math.max(k.at_us / 1e6, own_due(id, k.due))) -- @rule stream-return-not-early
  kept[#kept + 1], kept[#kept + 2] = id, known_as(k)
  return 'OK'
end

for n, id in ipairs(ids) do
  local at = seen[id]
  local verb = ARGV[at + 2]
  if not outcomes[verb] then return fail('BADVERB', verb) end
  local owner, idle, deliveries
  if there then
    owner, idle, deliveries = pending(id)
  end
  if not owner then
    reply[n + 1] = 'GONE'
  elseif owner ~= consumer or deliveries ~= tonumber(ARGV[at + 1]) or waiting[n] then -- @rule group-fence
    reply[n + 1] = 'STALE'
  else
    reply[n + 1] = end_lease(id, verb, ARGV[at + 3], known(raws[n]), deliveries, idle)
  end
end

redis.call('HDEL', group, NO_NONCE) -- @rule stream-settle-begins-with-a-delete
bury_here(died, now_us)
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
