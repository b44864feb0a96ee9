-- settle.lua: end leases.
--
-- KEYS    timeline, payloads, leases
-- ARGV[1] channel of wake hints
-- ARGV    then four for each timer, each timer once: timer_id, nonce, verb, detail
--           'ack', 'reject'  ''
--           'nack'           microseconds until it is due again, or '': when its lease ends
--           'release'        any of 'r' (it was received: count the attempt), 's' (deliver it alone)
-- Returns { score of the next timer or '', then for each timer 'OK' | 'STALE' | 'GONE' }
--         error WRONGKEYTYPE; error DUPLICATE <timer_id>; error BADVERB <verb>
-- Race    a late ACK after another relay took over, or after a publisher, foreign ones too, gave
--         the timer a new due time: the fence compares nonce and score before any write.
-- Race    a clock that steps back: no score that is written is before the due time.
-- Full    the first write is a delete, so that a Redis at its maxmemory lets timers drain.

local bad = wrong_type()
if bad then return bad end

local ids, at, seen = {}, {}, {}
for i = 2, #ARGV, 4 do
  local id = ARGV[i]
  if seen[id] then return fail('DUPLICATE', id) end
  seen[id] = true
  ids[#ids + 1], at[#at + 1] = id, i
end

local now_us = time_us()
local before = head()
local scores = redis.call('ZMSCORE', KEYS[1], unpack(ids))
local records = redis.call('HMGET', KEYS[3], unpack(ids))
local ended, forgotten, moved, kept, reply = {}, {}, {}, {}, {}

for n, id in ipairs(ids) do
  local nonce, verb, detail = ARGV[at[n] + 1], ARGV[at[n] + 2], ARGV[at[n] + 3]
  if not scores[n] then
    reply[n + 1] = 'GONE'
    forgotten[#forgotten + 1] = id -- a record without a timer is nobody's
  else
    local r = understand(tonumber(scores[n]), records[n])
    if not holds(r, nonce) then
      reply[n + 1] = 'STALE'
    elseif verb == 'ack' or verb == 'reject' then
      reply[n + 1] = 'OK'
      ended[#ended + 1] = id
      forgotten[#forgotten + 1] = id
    elseif verb == 'nack' or verb == 'release' then
      reply[n + 1] = 'OK'
      if verb == 'nack' then
        r.attempts = r.attempts + 1
        r.suspect = 0
        if detail ~= '' then r.score = own_score(now_us + tonumber(detail), r.due) end
      else
        if r.received == 1 or string.find(detail, 'r', 1, true) then r.attempts = r.attempts + 1 end
        r.suspect = string.find(detail, 's', 1, true) and 1 or 0
        r.score = own_score(now_us, r.due)
      end
      r.state, r.nonce, r.received = PENDING, NO_NONCE, 0
      moved[#moved + 1], moved[#moved + 2] = number(r.score), id
      kept[#kept + 1], kept[#kept + 2] = id, pack(r)
    else
      return fail('BADVERB', verb)
    end
  end
end

if #forgotten > 0 then
  redis.call('HDEL', KEYS[3], unpack(forgotten))
elseif #kept > 0 then
  redis.call('HDEL', KEYS[3], kept[1])
end
if #ended > 0 then
  redis.call('HDEL', KEYS[2], unpack(ended))
  redis.call('ZREM', KEYS[1], unpack(ended))
end
if #moved > 0 then
  redis.call('ZADD', KEYS[1], unpack(moved))
  redis.call('HSET', KEYS[3], unpack(kept))
end

local after = head()
hint(ARGV[1], before, after)
reply[1] = after
return reply
