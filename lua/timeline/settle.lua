-- timeline/settle.lua: end leases.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, marks hash
-- Uses    life, outcomes, letters, timeline
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         channel text              of wake hints
--         limits limits
-- Tail    groups of timers whose leases end alike: nonce, verb, detail, how many, and their ids; each timer once.
--         The details:
--           'ack'         ''
--           'nack'        microseconds until it is due again, or '' (when its lease ends); ';'; the error
--           'release'     any of 'r' (it was received: count the attempt), 'b' (its stream broke), 's' (deliver it
--                         alone), 'u' (it was never sent: the claim does not count); ';'; microseconds until it
--                         is due again
--           'reject'      the reason of its death, a word; ';'; the error
--           'reschedule'  when, see `instant`; ';'; envelope, or '' to keep it
-- Returns { score of the next timer or '', then for each timer that is not a simple success its place among
--           the ids, from 1, and a word: 'STALE' | 'GONE', or the reason of its death: that of 'reject',
--           'attempts' | 'claims' | 'age' }
--         error WRONGKEYTYPE; error DUPLICATE <timer_id>; error BADVERB <verb>; error LEAVING <timer_id>
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

local away = here.on_its_way(ids)
if away then return away end

local before = head()
local scores = redis.call('ZMSCORE', timeline, unpack(ids))
local records = redis.call('HMGET', leases, unpack(ids))
local reply = { '' }

local function say(n, word)
  reply[#reply + 1], reply[#reply + 2] = n, word
end

-- Store what an outcome other than ACK makes of a timer; answers a word where that is not what was asked for.
local function end_lease(id, nonce, verb, detail, r)
  r.ends_us = math.floor(r.score * 1e6)
  local became, what, text = outcomes[verb](r, now_us, detail, limits)
  if became == 'DEAD' then
    remove(id)
    local kept_too = limits.keep -- @rule outcome-letters-by-policy
    local envelope = kept_too and redis.call('HGET', payloads, id)
    letters[#letters + 1] = { id, r, envelope, what, text, nonce, kept_too }
    return what
  end
  if became == 'PENDING' then
    r.score = own_score(r.at_us, r.due) -- @rule return-never-early
    keep(id, r.score, pack(r))
    if JOURNAL then
      local facts = nonce_is(nonce) .. standing_is(r) .. score_is(r.score)
      if verb == 'nack' then facts = facts .. reason_is(nil, text) end -- @rule nack-tells-error
      note(BY_VERB[verb], id, facts .. received_is(text and 1))
    end
  else -- rescheduled: like the intent of a publisher, without a record, and with a score off our grid
    forgotten[#forgotten + 1] = id -- @rule reschedule-clears-record
    moved[#moved + 1], moved[#moved + 2] = what, id
    if text ~= '' then -- @rule reschedule-payload
      rewritten[#rewritten + 1], rewritten[#rewritten + 2] = id, text
    end
    if JOURNAL then note(BY_VERB[verb], id, nonce_is(nonce) .. due_is(what) .. previous_due_is(r.due)) end
  end
end

for n, id in ipairs(ids) do
  local from, score = seen[id], tonumber(scores[n] or nil)
  local nonce, verb, detail = ARGV[from], ARGV[from + 1], ARGV[from + 2]
  if not outcomes[verb] then return fail('BADVERB', verb) end
  if not score then
    say(n, 'GONE')
    -- @rule gone-clears-record
    forgotten[#forgotten + 1] = id -- a record without a timer is nobody's
    if JOURNAL and not here.leaving then -- @rule absent-outcomes-go-on
      note_taken(id, records[n])
      note_refusal(id, nonce, BY_VERB[verb])
    end
  elseif not holds(score, records[n], nonce) then -- @rule fence-for-all
    say(n, 'STALE')
    if JOURNAL then note_refusal(id, nonce, BY_VERB[verb], understand(score, records[n])) end -- @rule stale-noted
  elseif verb == 'ack' then
    remove(id)
    if JOURNAL then note(ACKED, id, nonce_is(nonce)) end -- @rule ack-noted
  else
    local word = end_lease(id, nonce, verb, detail, unpack_record(records[n]))
    if word then say(n, word) end
  end
end

bury(now_us) -- @rule burial-before-removal
write(now_us)
local after = head()
hint(channel, before, after) -- @rule settle-hints
reply[1] = after
return answer(reply)
