-- lib/dispatch/promotion.lua: how due timers leave the timeline for a list or a stream.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream
-- ARGV    limit count
--         max_bytes bytes
--         nonce nonce
--         at_once count
-- Race    two relays promote at once: a script is atomic, so that a timer is moved once.
-- Race    a producer that replaces or cancels a timer as it is promoted: what comes first holds. Behind it the
--         timer is promoted and can't be taken back, or is another one and stays.
-- Full    the first write is a delete, so that a Redis at its maxmemory lets timers drain.

-- The first timers that are due, and their payloads: ids, scores, envelopes. It stops at `max_bytes`. The first payload is
-- read alone, then as many at a time as there is room for if none is larger than those before.
local function due_timers(now_us)
  -- @rule promotion-never-early
  local found = redis.call('ZRANGEBYSCORE', timeline, '-inf', number(now_us / 1e6), 'WITHSCORES', 'LIMIT', 0, limit)
  local all, ids, scores, envelopes = {}, {}, {}, {}
  for i = 1, #found, 2 do
    all[#all + 1] = found[i]
  end
  local size, largest, some = 0, 1, 1
  while #ids < #all and (size < max_bytes or #ids == 0) do
    for _, envelope in ipairs(redis.call('HMGET', payloads, unpack(all, #ids + 1, math.min(#ids + some, #all)))) do
      local n = #ids + 1
      ids[n], scores[n], envelopes[n] = all[n], tonumber(found[2 * n]), envelope
      size, largest = size + (envelope and #envelope or 0), math.max(largest, envelope and #envelope or 0)
    end
    some = as_many_as_fit(max_bytes - size, largest, at_once) -- @rule promotion-reads-by-room
  end
  return ids, scores, envelopes
end

-- Move up to `limit` timers that are due; answers how many. `nonce` names the occurrence of those that were never claimed,
-- `readable(id)` says whether anybody can be given the timer, and `push(batch)` writes { timer_id, record, envelope,
-- occurrence_id } behind one another; it is called once, with at least one. `may()`, if need be, has Redis refuse at once
-- whatever it would refuse of that.
local function promote(now_us, readable, push, may)
  local ids, scores, envelopes = due_timers(now_us)
  if #ids == 0 then return 0 end
  local records, batch = redis.call('HMGET', leases, unpack(ids)), {}
  local own = hex(nonce) -- @rule occurrence-from-nonce
  for n, id in ipairs(ids) do
    local r = understand(scores[n], records[n])
    local lives, received, lapsed = claim_one(id, r, envelopes[n], now_us, not readable(id))
    if lives then
      remove(id) -- @rule promoted-removed
      -- @rule promotion-keeps-occurrence
      batch[#batch + 1] = { id, r, envelopes[n], id .. '/' .. (r.occurrence == NO_NONCE and own or hex(r.occurrence)) }
    end
    if lives and JOURNAL then
      local facts = nonce_is(lapsed) .. standing_is(r) .. received_is(received) .. expires_is(r.expires)
      note(PROMOTED, id, facts .. adopted_is(r.adopted)) -- @rule promotion-noted
    end
  end
  -- What could not be removed must not be pushed either: it would be pushed again and again.
  redis.call('HDEL', leases, NO_NONCE) -- @rule promotion-begins-with-deletes
  redis.call('HDEL', payloads, NO_NONCE)
  redis.call('ZREM', timeline, NO_NONCE) -- @rule removal-tried-before-push
  if JOURNAL then may_append() end
  -- Else the dead would be buried again and again.
  if may and #letters > 0 and #batch > 0 then may() end -- @rule push-asked-before-burial
  bury(now_us)
  if #batch > 0 then push(batch) end -- @rule push-before-removal
  write(now_us)
  return #batch
end
