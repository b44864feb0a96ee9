-- timeline/claimed.lua: find what a claim has leased whose reply was lost, in a part of the timeline.
--
-- KEYS    timeline zset, payloads hash, leases hash
-- Writes  nothing
-- ARGV    nonce nonce               of the claim
--         first text                where the part begins, as ZRANGEBYSCORE takes it
--         last text                 where it ends at the latest
--         max_bytes bytes           of the claim
-- Returns { now in microseconds, where the next part begins or '' if there is none, lease deadline as a score or '',
--           { timer_id, record, envelope, and so on } }
--         error WRONGKEYTYPE
-- Race    other things happen to a timer before the relay asks: a newer intent, a cancel, a lapse and another claim. The
--         fence tells: what does not have the nonce at this very score is not the claim's any more.
-- Race    a lease that runs out at this moment: the timer is due, and the next claim takes it.

local LOOK = 1000 -- entries; a claim's all have one score, and are fewer

local bad = wrong_type()
if bad then return bad end

local now_us = time_us()
local found = redis.call('ZRANGEBYSCORE', timeline, first, last, 'WITHSCORES', 'LIMIT', 0, LOOK)
local following, left = '', nil
if #found == 2 * LOOK then
  -- More may have the score at which this part ends. Where that is not a publisher's, they belong to the next part.
  local cut = found[#found]
  following = '(' .. cut
  if cut ~= found[2] and not whole_us(tonumber(cut)) then -- @rule one-score-one-part
    following, left = cut, cut
  end
end

local ids, scores = {}, {}
for n = 1, #found, 2 do
  local score = tonumber(found[n + 1])
  if found[n + 1] ~= left and not whole_us(score) then
    ids[#ids + 1], scores[#scores + 1] = found[n], score
  end
end

local timers, deadline, bytes = {}, '', 0
if #ids > 0 then
  for n, record in ipairs(redis.call('HMGET', leases, unpack(ids))) do
    if scores[n] * 1e6 > now_us and holds(scores[n], record, nonce) then -- @rule found-under-the-nonce
      local envelope = redis.call('HGET', payloads, ids[n])
      if envelope then -- @rule found-with-payload
        local m = #timers
        bytes = bytes + #envelope
        if bytes > max_bytes and m > 0 then break end -- @rule found-bounded-by-bytes
        if m == 0 then deadline = number(scores[n]) end -- the earliest, whatever became of the others
        timers[m + 1], timers[m + 2], timers[m + 3] = ids[n], record, envelope
      end
    end
  end
end
return { string.format('%.0f', now_us), following, deadline, timers }
