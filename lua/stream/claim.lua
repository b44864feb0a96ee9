-- stream/claim.lua: lease entries of a stream for one consumer of a group; timeline/claim.lua's counterpart.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, pause string,
--         stream stream, retries zset, group hash, latest string, marks hash
-- Uses    text, life, letters, timeline, due_timers, dispatch/promotion, dispatch/stream_entry, dispatch/stream_group
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         limit count               1 to 500
--         lease us                  an entry idle for this long is a dead consumer's
--         nonce nonce               never used before
--         max_bytes bytes           of payloads to stop at (the first timer is taken whatever its size)
--         grace us                  for a timer without payload
--         group_name text
--         consumer text
--         cursor text               where to go on looking for what the dead have left, '0-0': at the start; '' to look for none
--         wants_new flag            claim new entries too
--         limits limits             of the topic's policy
--         at_once count             payloads to read at a time at most: all that is read has to be taken, however large it is
--         begins text               where the group begins if it isn't there: '$', behind all entries, or '0'
-- Returns { now in microseconds, score of what comes next (now, if there is more) or '', lease deadline as a score, number parked,
--           { ids removed as orphans },
--           { what `told` of lib/dispatch/stream_entry.lua tells of each timer },
--           { timer_id, reason, and so on, of those that died },
--           end of the pause in microseconds if there is one, else '',
--           number promoted, where to go on looking ('0-0' at the end of a round), number pending in the group,
--           number of entries that were pending and are not in the stream any more }
--         error WRONGKEYTYPE
-- Race    two relays of a group claim at once: a script is atomic, and what one has read is pending with it.
-- Race    a relay that comes back after its entry was taken from it: the entry is another consumer's, or was
--         delivered once more; see lib/dispatch/stream_entry.lua.
-- Race    the reply is lost: nobody knows what was taken. The consumer's latest claim is kept for as long as its leases
--         last, and stream/claimed.lua reads it. The consumer's next claim replaces it, which does not begin before the
--         question is answered.
-- Race    a relay that dies while a handler runs: nobody settles, so whoever takes the entry counts the attempt.
-- Full    the first write is a delete, or one that Redis permits at its maxmemory.

local LOOK = 500 -- entries that one call takes, whatever becomes of them

local bad = wrong_type()
if bad then return bad end

local deadline = number((now_us + lease) / 1e6)
local summary = redis.pcall('XPENDING', stream, group_name)
if summary.err then
  redis.call('HDEL', group, NO_NONCE)
  redis.call('XGROUP', 'CREATE', stream, group_name, begins, 'MKSTREAM') -- @rule group-begins-where-told
  summary = { 0 }
end
local till = redis.call('GET', pause)
if now_us < (tonumber(till or 0) or 0) then -- @rule stream-pause-holds
  return answer({ string.format('%.0f', now_us), next_for_us(), deadline, 0, {}, {}, {}, till, 0, '0-0', 0, 0 })
end

-- @rule group-keeps-its-place
local promoted = promote(now_us, anybody, to_stream)
local timers, died, acked, forgotten, kept, missing = {}, {}, {}, {}, {}, 0
local again, first_new, last_new = {}, '', '' -- what we took: entries and their deliveries; and all between two new ones
local count, looked, bytes = 0, 0, 0 -- of those that are handed out, of all, and of the payloads of all

-- Take one entry that is pending with us by now, for the `deliveries`-th time.
local function claim_entry(entry, deliveries, raw)
  local it, k = read_entry(entry), known(raw)
  looked, bytes = looked + 1, bytes + #it.envelope
  -- @rule retries-are-their-groups
  if it.only_group and it.only_group ~= group_name then -- somebody else's second try
    acked[#acked + 1] = entry[1]
    return
  end
  local received = k.received
  k.state, k.claims, k.due, k.expires = LEASED, deliveries - 1 - k.unsent, it.due, it.expires
  local became, reason = claimed(k, now_us, limits, true)
  if received == 1 then -- @rule stream-lapse-kept
    kept[#kept + 1], kept[#kept + 2] = entry[1], known_as(k)
  end
  if became == 'DEAD' then
    deaths[#deaths + 1], deaths[#deaths + 2] = it.timer_id, reason
    died[#died + 1] = { it, k, reason, '', limits.keep and (reason ~= 'expired' or limits.keep_expired) }
    acked[#acked + 1] = entry[1]
    return
  end
  count = count + 1
  told(timers, entry[1], deliveries, it, k)
end

-- Make pending entries ours, one delivery more each, and claim them.
local function take_again(ids)
  if #ids == 0 then return end
  local known_of, there, before = redis.call('HMGET', group, unpack(ids)), {}, {}
  for n, id in ipairs(ids) do
    before[n] = select(3, pending(id)) or 0
  end
  for _, entry in ipairs(redis.call('XCLAIM', stream, group_name, consumer, 0, unpack(ids))) do
    if entry and entry[2] then there[entry[1]] = entry end
  end
  for n, id in ipairs(ids) do
    local entry = there[id]
    if entry then
      again[#again + 1], again[#again + 2] = id, before[n] + 1
      claim_entry(entry, before[n] + 1, known_of[n])
    -- @rule acknowledged-elsewhere-told-apart
    elseif before[n] > 0 then -- trimmed by somebody; what Redis 6 still calls pending is so no longer
      missing = missing + 1
      acked[#acked + 1] = id
    else -- acknowledged by a plain consumer; or of a group that was lost, and new to the one that took its place
      forgotten[#forgotten + 1] = id -- @rule unknown-entries-forgotten
    end
  end
end

-- How many more may be read without going far beyond the bytes: as many as fit by the mean of those before. Those that
-- die, or are for another group, have their bound as well: a group that was away may find any number of them.
local function may_read(at_first)
  if looked == 0 then return math.min(limit, at_first, at_once) end
  if bytes >= max_bytes then return 0 end
  -- @rule claim-bounded
  return math.min(limit - count, LOOK - looked, at_once, math.ceil((max_bytes - bytes) / (bytes / looked + 1)))
end

-- When to look again at an entry that waits for another try, if a plain consumer took it meanwhile and may be at work:
-- when it has been idle for a lease. nil if nobody did, or long ago.
local function elsewhere(id, k)
  local _, idle, deliveries = pending(id)
  -- @rule plain-consumer-has-a-lease
  if deliveries and k.deliveries > 0 and deliveries > k.deliveries and idle * 1000 < lease then
    return now_us + lease - idle * 1000
  end
end

-- First what waits for another try. A timer that comes again for this group alone is put into the stream. A function
-- of its own, since a script may have 200 locals.
local function take_waiting()
  local due = redis.call('ZRANGEBYSCORE', retries, '-inf', number(now_us / 1e6), 'LIMIT', 0, limit)
  local tried = 0
  while tried < #due do
    local most = may_read(8)
    if most <= 0 then break end
    local part = { unpack(due, tried + 1, math.min(tried + most, #due)) }
    local ready, detached, later = {}, {}, {}
    redis.call('ZREM', retries, NO_NONCE)
    for n, raw in ipairs(redis.call('HMGET', group, unpack(part))) do
      if raw and string.sub(raw, 1, 1) == 'D' then
        local timer_id, at, occurrence, envelope = unpack(cmsgpack.unpack(string.sub(raw, 2)))
        -- @rule no-two-occurrences-alike
        if occurrence == '' then occurrence = timer_id .. '/' .. string.sub(redis.sha1hex(nonce .. part[n]), 1, 32) end -- no two alike
        -- stylua: ignore
        redis.call('XADD', stream, '*', 'timer_id', timer_id, 'occurrence_id', occurrence, 'due_time', number(at),
          'only_group', group_name, '__data__', envelope)
        detached[#detached + 1] = part[n]
      else
        local at = elsewhere(part[n], known(raw))
        if at then -- @rule plain-consumer-left-at-work
          later[#later + 1], later[#later + 2] = number(at / 1e6), part[n]
        else
          ready[#ready + 1] = part[n]
        end
      end
    end
    redis.call('ZREM', retries, unpack(part))
    if #later > 0 then redis.call('ZADD', retries, unpack(later)) end
    if #detached > 0 then redis.call('HDEL', group, unpack(detached)) end
    take_again(ready)
    tried = tried + #part
  end
end
take_waiting()

-- Then a step of the round over what is pending: what has been idle for a lease is a dead consumer's. All that is
-- found is ours from then on, and so it has to be taken.
local next_cursor, most = '0-0', may_read(32)
if cursor ~= '' and most <= 0 then
  -- @rule round-goes-on-without-room
  next_cursor = cursor -- no room: the round goes on there, or its end might never be reached
elseif cursor ~= '' and summary[1] > 0 then -- @rule idle-taken
  local found =
    redis.call('XAUTOCLAIM', stream, group_name, consumer, math.floor(lease / 1000), cursor, 'COUNT', most, 'JUSTID')
  next_cursor = found[1]
  local left = {}
  if #found[2] > 0 then
    for n, at in ipairs(redis.call('ZMSCORE', retries, unpack(found[2]))) do
      -- @rule waiting-not-taken
      if not at then left[#left + 1] = found[2][n] end -- else it waits for its time
    end
  end
  for _, id in ipairs(found[3] or {}) do -- trimmed by somebody, and pending no more
    missing = missing + 1 -- @rule trimmed-acknowledged
    acked[#acked + 1] = id
  end
  take_again(left)
end

-- Then what is new. `last` is the last entry that was read, '-' for none, nil once there is none behind it.
local last = '-'
while wants_new do -- @rule dedicated-takes-nothing-new
  most = may_read(8)
  if most <= 0 then break end
  local read = redis.call('XREADGROUP', 'GROUP', group_name, consumer, 'COUNT', most, 'STREAMS', stream, '>')
  local entries = read and read[1] and read[1][2] or {}
  for _, entry in ipairs(entries) do
    claim_entry(entry, 1, nil)
  end
  if #entries > 0 then
    if first_new == '' then first_new = entries[1][1] end
    last_new = entries[#entries][1]
  end
  last = #entries == most and entries[most][1] or nil
  if not last then break end
end
local more = wants_new and last and (last == '-' or #redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', 1) > 0) -- @rule more-looked-for

bury_here(died, now_us)
if #forgotten > 0 then redis.call('HDEL', group, unpack(forgotten)) end
if #acked > 0 then
  redis.call('HDEL', group, unpack(acked))
  redis.call('XACK', stream, group_name, unpack(acked)) -- @rule stream-dead-acknowledged
end
if #kept > 0 then
  redis.call('HDEL', group, NO_NONCE)
  redis.call('HSET', group, unpack(kept))
  if #acked > 0 then redis.call('HDEL', group, unpack(acked)) end
end
if count > 0 then
  local taken = cmsgpack.pack({ nonce, deadline, first_new, last_new, again })
  redis.call('SET', latest, taken, 'PX', math.ceil(lease / 1000)) -- @rule latest-claim-kept
end
return answer({
  string.format('%.0f', now_us),
  more and number(now_us / 1e6) or next_for_us(), -- @rule more-told
  deadline,
  parked,
  orphans,
  timers,
  deaths,
  '',
  promoted,
  next_cursor,
  redis.call('XPENDING', stream, group_name)[1],
  missing,
})
