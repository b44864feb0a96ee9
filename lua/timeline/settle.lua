-- timeline/settle.lua: end leases.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, marks hash
-- Uses    letters
-- ARGV    channel text              of wake hints
--         limits limits
-- Tail    groups of timers whose leases end alike: nonce, verb, detail, how many, and their ids; each timer once.
--         The details:
--           'ack'         ''
--           'nack'        microseconds until it is due again, or '' (when its lease ends); ';'; the error
--           'release'     any of 'r' (it was received: count the attempt), 's' (deliver it alone), 'u' (it
--                         was never sent: the claim does not count); ';'; microseconds until it is due again
--           'reject'      the reason of its death, a word; ';'; the error
--           'reschedule'  when, see `instant`; ';'; envelope, or '' to keep it
-- Returns { score of the next timer or '', then for each timer that is no simple success its place among
--           the ids, from 1, and a word: 'STALE' | 'GONE', or the reason of its death: that of 'reject',
--           'attempts' | 'claims' | 'age' }
--         error WRONGKEYTYPE; error DUPLICATE <timer_id>; error BADVERB <verb>
-- Race    a late ACK after another relay took over, or after a publisher, foreign ones too, gave
--         the timer a new due time: the fence compares nonce and score before any write.
-- Race    a relay that dies between the end of a periodic timer's lease and its next period: both are
--         one step here.
-- Race    a clock that steps back: no score that is written is before the due time.
-- Full    the first write is a delete, so that a Redis at its maxmemory lets timers drain.

local bad = wrong_type()
if bad then return bad end

local ids, seen = {}, {} -- and where in ARGV a timer's group begins
local from, n = tail, 0
while from <= #ARGV do
  local last = from + 3 + ARGV[from + 3]
  for i = from + 4, last do
    local id = ARGV[i]
    if seen[id] then return fail('DUPLICATE', id) end -- @rule settle-once-a-timer
    n = n + 1
    ids[n], seen[id] = id, from
  end
  from = last + 1
end

local now_us = time_us()
local before = head()
local scores = redis.call('ZMSCORE', timeline, unpack(ids))
local records = redis.call('HMGET', leases, unpack(ids))
local ended, forgotten, moved, kept, rewritten, letters, reply = {}, {}, {}, {}, {}, {}, { '' }

-- Note how a lease ended, and what is left of the timer.
local function note_end(id, fields) note(BY_VERB[ARGV[seen[id] + 1]], id, nonce_is(ARGV[seen[id]]) .. fields) end

local function remove(id)
  ended[#ended + 1] = id
  forgotten[#forgotten + 1] = id -- @rule end-clears-record
end

-- This, and each of `verbs`, answers a word where the end became another than was asked for.
local function die(id, r, reason, text)
  remove(id)
  r.received = reason == 'unreadable' and 0 or 1
  local keep = limits.keep -- @rule outcome-letters-by-policy
  local envelope = keep and redis.call('HGET', payloads, id)
  letters[#letters + 1] = { id, r, envelope, reason, text, ARGV[seen[id]], keep }
  return reason
end

-- Due again; `text` is what went wrong, if that was an attempt.
local function again(id, r, text)
  r.state, r.nonce, r.received = PENDING, NO_NONCE, 0 -- @rule return-ends-lease
  local reason = text and fate(r, math.floor(r.score * 1e6), limits) -- @rule return-asks-for-ends
  if reason then return die(id, r, reason, text) end
  moved[#moved + 1], moved[#moved + 2] = r.score, id -- @rule return-score-as-number
  kept[#kept + 1], kept[#kept + 2] = id, pack(r)
  if JOURNAL then note_end(id, standing_is(r) .. score_is(r.score) .. received_is(text and 1)) end
end

local verbs = {}

function verbs.ack(id)
  if JOURNAL then note_end(id, '') end -- @rule ack-noted
  remove(id)
end

function verbs.nack(id, r, detail)
  local delay, text = cut(detail)
  r.attempts = r.attempts + 1 -- @rule nack-counts
  r.suspect = 0
  if delay ~= '' then r.score = own_score(now_us + tonumber(delay), r.due) end -- @rule nack-never-early
  return again(id, r, text)
end

function verbs.release(id, r, detail)
  local flags, delay = cut(detail)
  local received = r.received == 1 or string.find(flags, 'r', 1, true) -- @rule release-counts-receipt
  if received then r.attempts = r.attempts + 1 end
  if string.find(flags, 'u', 1, true) then r.claims = math.max(r.claims - 1, 0) end -- @rule unsent-claim-uncounted
  r.suspect = string.find(flags, 's', 1, true) and 1 or 0
  r.score = own_score(now_us + (received and tonumber(delay) or 0), r.due) -- @rule release-never-early
  return again(id, r, received and 'the delivery ended without an outcome')
end

function verbs.reject(id, r, detail)
  local reason, text = cut(detail)
  r.attempts = r.attempts + 1 -- @rule reject-counts
  return die(id, r, reason, text)
end

-- A new intent, like that of a publisher: no record, and a score off our grid.
function verbs.reschedule(id, r, detail)
  local when, envelope = cut(detail)
  local score = math.min(instant(when, now_us), LATEST) -- @rule reschedule-before-9999
  forgotten[#forgotten + 1] = id -- @rule reschedule-clears-record
  moved[#moved + 1], moved[#moved + 2] = score, id
  if JOURNAL then note_end(id, due_is(score) .. previous_due_is(r.due)) end
  if envelope ~= '' then -- @rule reschedule-payload
    rewritten[#rewritten + 1], rewritten[#rewritten + 2] = id, envelope
  end
end

local function say(n, word)
  reply[#reply + 1], reply[#reply + 2] = n, word
end

for n, id in ipairs(ids) do
  local from, score = seen[id], tonumber(scores[n] or nil)
  local nonce, verb, detail = ARGV[from], ARGV[from + 1], ARGV[from + 2]
  if not verbs[verb] then return fail('BADVERB', verb) end
  if not score then
    say(n, 'GONE')
    -- @rule gone-clears-record
    forgotten[#forgotten + 1] = id -- a record without a timer is nobody's
    if JOURNAL then
      note_taken(id, records[n])
      note_refusal(id, nonce, BY_VERB[verb])
    end
  elseif holds(score, records[n], nonce) then -- @rule fence-for-all
    local word = verbs[verb](id, verb ~= 'ack' and unpack_record(records[n]), detail)
    if word then say(n, word) end
  else
    say(n, 'STALE')
    if JOURNAL then note_refusal(id, nonce, BY_VERB[verb], understand(score, records[n])) end -- @rule stale-noted
  end
end

local names = bury(letters, now_us) -- @rule burial-before-removal
if JOURNAL then
  note_deaths(letters, names)
  append_always(now_us) -- @rule settle-noted
end
if #forgotten > 0 then
  redis.call('HDEL', leases, unpack(forgotten))
elseif #kept > 0 then -- @rule settle-begins-with-a-delete
  redis.call('HDEL', leases, kept[1])
end
if #ended > 0 then
  redis.call('HDEL', payloads, unpack(ended)) -- @rule end-clears-payload
  redis.call('ZREM', timeline, unpack(ended))
  mark(ended) -- @rule end-marked
end
if #moved > 0 then redis.call('ZADD', timeline, unpack(moved)) end
if #kept > 0 then redis.call('HSET', leases, unpack(kept)) end
if #rewritten > 0 then redis.call('HSET', payloads, unpack(rewritten)) end

local after = head()
hint(channel, before, after) -- @rule settle-hints
reply[1] = after
return answer(reply)
