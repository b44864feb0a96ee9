-- recur/turn.lua: write what has become of recurrences: where each stands, and the occurrences that come.
--
-- KEYS    timeline zset, payloads hash, leases hash, rules hash, standings hash, ticks zset, marks hash
-- Uses    recurring
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         channel text              of wake hints
--         most count                timers that the partition may hold, 0: no limit
-- Tail    of each recurrence: its id; where it stood when it was read, and whether its last occurrence was there, '1' or '';
--         where it stands from now on; when to look at it: microseconds, or 'inf'; its next nominal instant before and from
--         now on, in unix seconds, 0 for none, and why some have no occurrence, for the journal; the id of the occurrence to
--         cancel, or ''; how many occurrences come; and of each its id, when, envelope
--           when: a score; and then, if it expires, ';x' and how many microseconds after that
-- Returns for each recurrence 'OK'
--           'OTHER'                   it, or its last occurrence, is not as it was read; nothing of it was written
--           'FULL'                    the partition is at its limit; nothing of it was written
--         error WRONGKEYTYPE; error OOM from Redis, with nothing written, since ZADD, or the journal's XADD, is the first
--         write
-- Race    two relays that turn one recurrence: the second finds that it stands elsewhere. A handler that ends while a turn is
--         computed: the turn believes that the last occurrence is in the way. Both are computed again.
-- Race    a rule that is changed, paused, deleted: so is where the recurrence stands, and turns from before change nothing.

local bad = wrong_type()
if bad then return bad end

local room = most > 0 and most - redis.call('ZCARD', timeline) or math.huge
local reply, standing, looks = {}, {}, {}
local scores, stored, records, gone, fresh_ids = {}, {}, {}, {}, {}

-- The occurrences of a recurrence, from a place in ARGV on; those are left out whose id lives already.
local function occurrences(from, count)
  local found = {}
  for at = from, from + 3 * count - 1, 3 do
    if not redis.call('ZSCORE', timeline, ARGV[at]) then found[#found + 1] = at end -- @rule living-occurrences-stay
  end
  return found
end

local function take_in(at)
  local id, when, envelope = unpack(ARGV, at, at + 2)
  local text, rest = cut(when)
  local score, expires = tonumber(text), 0
  if rest ~= '' then
    expires = math.min((math.floor(score * 1e6 + 0.5) + tonumber(string.sub(rest, 2))) / 1e6, LATEST)
  end
  local own = expires > 0 and expiring(score, expires)
  if JOURNAL then
    note_taken(id, redis.call('HGET', leases, id))
    note(SCHEDULED, id, due_is(math.max(score, 0)) .. expires_is(expires))
  end
  scores[#scores + 1], scores[#scores + 2] = number(own and own.score or score), id
  stored[#stored + 1], stored[#stored + 2] = id, envelope
  fresh_ids[#fresh_ids + 1] = id
  if own then
    records[#records + 1], records[#records + 2] = id, pack(own)
  end
end

local function cancel(id)
  local score = redis.call('ZSCORE', timeline, id)
  if not score then return end
  if JOURNAL then
    local r = understand(tonumber(score), redis.call('HGET', leases, id))
    note(CANCELLED, id, nonce_is(r.nonce) .. due_is(r.due) .. adopted_is(r.adopted))
  end
  gone[#gone + 1] = id
end

local i = tail
while i <= #ARGV do
  local id, stood, there, stands, look, before, following, reasons, cancelled, count = unpack(ARGV, i, i + 9)
  local first, word = i + 10, 'OK'
  i = first + 3 * count
  -- @rule turns-compare-standing
  if redis.call('HGET', standings, id) ~= stood then
    word = 'OTHER'
  elseif last_stands(stood) ~= there then -- @rule turns-compare-last
    word = 'OTHER'
  end
  if word == 'OK' then
    local coming = occurrences(first, count)
    local frees = cancelled ~= '' and redis.call('ZSCORE', timeline, cancelled) and 1 or 0 -- @rule cancelled-one-makes-room
    if #coming > room + frees then word = 'FULL' end -- @rule full-topic-turns-later
    if word == 'OK' then
      room = room + frees - #coming
      -- @rule looks-are-no-news
      if JOURNAL and (before ~= following or reasons ~= '' or #coming > 0 or cancelled ~= '') then
        local from_to = due_is(tonumber(following)) .. previous_due_is(tonumber(before))
        note(TICKED, id, from_to .. reason_is(reasons) .. count_is(#coming))
      end
      if cancelled ~= '' then cancel(cancelled) end -- @rule turns-cancel
      for _, each in ipairs(coming) do
        take_in(each)
      end
      standing[#standing + 1], standing[#standing + 2] = id, stands
      looks[#looks + 1], looks[#looks + 2] = look, id
    end
  end
  reply[#reply + 1] = word
end

if #standing > 0 then
  local before = head()
  if JOURNAL then append(now_us) end -- @rule turn-noted
  redis.call('ZADD', ticks, unpack(looks))
  redis.call('HSET', standings, unpack(standing))
  if #gone > 0 then
    redis.call('HDEL', leases, unpack(gone))
    redis.call('HDEL', payloads, unpack(gone))
    redis.call('ZREM', timeline, unpack(gone))
    mark(gone)
  end
  if #scores > 0 then
    redis.call('ZADD', timeline, unpack(scores))
    redis.call('HDEL', leases, unpack(fresh_ids)) -- @rule turn-clears-records
    redis.call('HSET', payloads, unpack(stored))
    if #records > 0 then redis.call('HSET', leases, unpack(records)) end
    hint(channel, before, head()) -- @rule turn-hints
  end
end
return answer(reply)
