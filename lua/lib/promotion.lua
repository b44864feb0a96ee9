-- lib/promotion.lua: how due timers leave the timeline for a list or a stream.
--
-- KEYS    timeline zset, payloads hash, leases hash
-- Race    two relays promote at once: a script is atomic, so that a timer is moved once.
-- Race    a producer that replaces or cancels a timer as it is promoted: what comes first holds. Behind it the
--         timer is promoted and can't be taken back, or is another one and stays.
-- Full    the first write is a delete, so that a Redis at its maxmemory lets timers drain.

-- Move up to `limit` timers that are due, and stop at so many bytes of payloads, which are read `at_once` at a time.
-- `nonce` names the occurrence of
-- those that were never claimed, `readable(id)` says whether anybody can be given the timer, and `push(batch)`
-- writes { timer_id, record, envelope, occurrence_id } behind one another; it is called once, with at least one.
-- `may()`, if need be, has Redis refuse at once whatever it would refuse of that.
-- Returns { promoted, parked, orphans, deaths }, the last two as timeline/claim.lua does.
local function promote(now_us, limit, max_bytes, at_once, grace, limits, nonce, readable, push, may)
  -- @rule promotion-never-early
  local found = redis.call('ZRANGEBYSCORE', timeline, '-inf', number(now_us / 1e6), 'WITHSCORES', 'LIMIT', 0, limit)
  local done = { promoted = 0, parked = 0, orphans = {}, deaths = {} }
  if #found == 0 then return done end
  local all, ids, scores, envelopes = {}, {}, {}, {}
  for i = 1, #found, 2 do
    all[#all + 1] = found[i]
  end
  -- The first payload alone, then as many at a time as there is room for if none is larger than those before.
  local size, largest, some = 0, 1, 1
  while #ids < #all and (size < max_bytes or #ids == 0) do
    for _, envelope in ipairs(redis.call('HMGET', payloads, unpack(all, #ids + 1, math.min(#ids + some, #all)))) do
      local n = #ids + 1
      ids[n], scores[n], envelopes[n] = all[n], tonumber(found[2 * n]), envelope
      size, largest = size + (envelope and #envelope or 0), math.max(largest, envelope and #envelope or 0)
    end
    some = math.max(1, math.min(at_once, math.floor((max_bytes - size) / largest))) -- @rule promotion-reads-by-room
  end
  local records = redis.call('HMGET', leases, unpack(ids))
  local batch, gone, moved, kept, letters = {}, {}, {}, {}, {}
  local own = hex(nonce) -- @rule occurrence-from-nonce
  for n, id in ipairs(ids) do
    local r = understand(scores[n], records[n])
    local lapsed, ended = r.nonce, r.received -- of a lease, where the topic was dispatched otherwise before
    if r.state == LEASED then r.attempts = r.attempts + r.received end
    r.received = 0
    local expired = r.expires > 0 and now_us / 1e6 >= r.expires
    -- @rule promotion-asks-for-ends
    local reason = expired and 'expired' or not readable(id) and 'unreadable' or fate(r, now_us, limits)
    if not envelopes[n] and r.state ~= PARKED then -- @rule promotion-parks-once
      done.parked = done.parked + 1
      r.state, r.nonce, r.score = PARKED, NO_NONCE, own_score(now_us + grace, r.due)
      moved[#moved + 1], moved[#moved + 2] = r.score, id
      kept[#kept + 1], kept[#kept + 2] = id, pack(r)
      if JOURNAL then
        note(
          KIND_PARKED,
          id,
          nonce_is(lapsed) .. standing_is(r) .. score_is(r.score) .. received_is(ended) .. adopted_is(r.adopted)
        )
      end
    else
      gone[#gone + 1] = id
      if not envelopes[n] then
        done.orphans[#done.orphans + 1] = id
        if JOURNAL then note(ORPHANED, id, due_is(r.due)) end
      elseif reason then
        done.deaths[#done.deaths + 1], done.deaths[#done.deaths + 2] = id, reason
        r.received = ended
        local text = reason == 'unreadable' and 'the id is not UTF-8' or ''
        letters[#letters + 1] =
          { id, r, envelopes[n], reason, text, lapsed, limits.keep and (not expired or limits.keep_expired) }
      else
        batch[#batch + 1] =
          -- @rule promotion-keeps-occurrence
          { id, r, envelopes[n], id .. '/' .. (r.occurrence == NO_NONCE and own or hex(r.occurrence)) }
        if JOURNAL then
          note( -- @rule promotion-noted
            PROMOTED,
            id,
            nonce_is(lapsed) .. standing_is(r) .. received_is(ended) .. expires_is(r.expires) .. adopted_is(r.adopted)
          )
        end
      end
    end
  end
  -- What could not be removed must not be pushed either: it would be pushed again and again.
  redis.call('HDEL', leases, NO_NONCE) -- @rule promotion-begins-with-deletes
  redis.call('HDEL', payloads, NO_NONCE)
  redis.call('ZREM', timeline, NO_NONCE) -- @rule removal-tried-before-push
  if JOURNAL then may_append() end
  -- @rule push-asked-before-burial
  if may and #letters > 0 and #batch > 0 then may() end -- else the dead would be buried again and again
  local names = bury(letters, now_us)
  if #batch > 0 then push(batch) end -- @rule push-before-removal
  if JOURNAL then
    note_deaths(letters, names)
    append_always(now_us)
  end
  if #gone > 0 then
    redis.call('HDEL', leases, unpack(gone))
    redis.call('HDEL', payloads, unpack(gone))
    redis.call('ZREM', timeline, unpack(gone)) -- @rule promoted-removed
    mark(gone) -- @rule promotion-marked
  end
  if #moved > 0 then
    redis.call('ZADD', timeline, unpack(moved))
    redis.call('HSET', leases, unpack(kept))
  end
  done.promoted = #batch
  return done
end
