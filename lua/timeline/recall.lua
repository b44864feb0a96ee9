-- timeline/recall.lua: let leases end that the clock of before has given, when that has stepped back.
--
-- KEYS    timeline zset, payloads hash, leases hash
-- Uses    life, timeline
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         channel text              of wake hints
--         lease us                  that a lease lasts at most
--         back us                   by how much the clock has stepped back; 0 if that is not known
--         limits limits
-- Tail    of each timer, each once: timer_id, and the score at which its lease has stood for as long as a lease lasts,
--         '' if that is not known
-- Returns { now in microseconds, then for each the score to be asked for again, or '' if nothing is left to do }
--         error WRONGKEYTYPE; error LEAVING <timer_id>
-- Race    the relay that has a lease lives, and renews it. A renewal cuts it to a lease from now, and this does the same:
--         whichever comes first, the other finds nothing to do, and the token stays. No lease is cut to less than it
--         would have had by the clock of before.
-- Race    a relay with a longer lease has renewed by the new clock. By the clock of before that seems to have ended long ago:
--         so it has a lease from now, and is not taken from who lives.
-- Race    the due time lies ahead, too, and no timer comes before that. So such a lease can't be cut. It ends once nobody has
--         renewed it for as long as a lease lasts: each renewal changes the score. The timer waits for its due time, and
--         a token from before is stale. Until then it could be neither run nor known to be free.
-- Full    the first write is a delete.

local bad = wrong_type()
if bad then return bad end

local ids = {}
for i = tail, #ARGV, 2 do
  ids[#ids + 1] = ARGV[i]
end
local away = here.on_its_way(ids)
if away then return away end

local scores, records = redis.call('ZMSCORE', timeline, unpack(ids)), redis.call('HMGET', leases, unpack(ids))
local reply, ends_us = { string.format('%.0f', now_us) }, now_us + lease
local latest = own_score(ends_us, 0)

for n, id in ipairs(ids) do
  local score, r, asked = tonumber(scores[n] or nil), unpack_record(records[n]), tonumber(ARGV[tail + 2 * n - 1])
  reply[n + 1] = ''
  -- @rule leases-of-now-stay
  if score and r and r.state == LEASED and r.score == score and score > latest then
    local nonce, received = r.nonce, r.received
    if r.due * 1e6 <= ends_us then
      local left_us = math.min(ends_us, math.floor(score * 1e6) - back)
      if left_us < now_us - lease then left_us = ends_us end -- @rule leases-of-the-new-clock-live
      r.score = own_score(left_us, r.due) -- @rule leases-of-before-are-cut
      keep(id, r.score, pack(r))
      if JOURNAL then note(EXTENDED, id, nonce_is(nonce) .. score_is(r.score)) end -- @rule cut-noted
    elseif asked == score then -- @rule renewed-leases-stay
      if received == 1 then r.suspect = suspected(r, 1, limits) end -- @rule recall-raises-suspicion
      r.attempts = r.attempts + received -- @rule recall-counts-receipt
      r.state, r.nonce, r.received = PENDING, NO_NONCE, 0 -- @rule recall-ends-lease
      r.score = own_score(now_us, r.due) -- @rule recall-never-early
      keep(id, r.score, pack(r))
      if JOURNAL then -- @rule recall-noted
        note(RELEASED, id, nonce_is(nonce) .. standing_is(r) .. score_is(r.score) .. received_is(received))
      end
    else
      reply[n + 1] = number(score)
    end
  end
end

local before = head()
write(now_us)
hint(channel, before, head()) -- @rule recall-hints
return answer(reply)
