-- timeline/schedule.lua: store timers.
--
-- KEYS    timeline zset, payloads hash, leases hash
-- Uses    conditions, text
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         each_until text           and the same of each timer, or ''; see lib/conditions.lua
--         channel text              of wake hints
--         most count                timers that the topic may hold, 0: no limit
-- Tail    of each timer: timer_id, when, envelope
--           when: see `instant`; and then, if wanted, each behind a semicolon and in this order:
--             'o' and 32 hex digits    the caller's name for the occurrence: one that lives is left as it is
--             'e' and a score          it expires then
--             'x' and microseconds     it expires this long after its due time
--             'c'                      only if there is no such timer
--             '<' or '>'               only if there is none, or if it is due earlier, or later, than the one there is
--             'b', and maybe microseconds   a debounced timer, with a delay; the limit that it sets, from now: see
--                                      `limit_of`
--             'h' and digits, 'p', 'd' and a score     only if; see `refuses`
-- Returns { the due times that callers can't know, as packed scores of eight bytes, little-endian: of each timer that
--             came with a delay or is due from 2242 on, where a score is coarser than a microsecond, in their order;
--           then for each timer that is not simply new its place, from 1, a word and a text }
--           'REPLACED'                 ''
--           'UNCHANGED', 'IN_FLIGHT'   the due time of the timer that is there; nothing was written
--             behind REPLACED and UNCHANGED ' UNDER_WAY': see `told`
--           'GONE'                     '': a condition, and no timer to hold it against; or the call is about timers that
--             leave, and this one is not here
--           'FULL'                     '': the topic is at its limit
--           'GIVENUP'                  '': the time of its caller was over
--         error WRONGKEYTYPE; error LEAVING <timer_id>; error OUTOFRANGE <index from 0> if a delay ends after 9999;
--         error OOM from Redis, with nothing written, since ZADD, or the journal's XADD, is the first write
-- Race    a timer that is replaced while a relay delivers it: its record goes, so the relay's
--         token is worth nothing and its late ACK can't remove the new intent.
-- Race    a call that is repeated because its answer was lost, under the occurrence's name, while the occurrence is delivered:
--         it is found by its record, and neither its lease nor its attempts are lost.
-- Race    a debounced timer that is claimed between two calls of its run: the claim writes a record in the place of the
--         limit, so the second call begins another run, and its timer is delivered besides.

local bad = wrong_type()
if bad then return bad end

local ids = {}
for i = tail, #ARGV, 3 do
  ids[#ids + 1] = ARGV[i]
end
local away = here.on_its_way(ids)
if away then return away end
local found = redis.call('ZMSCORE', timeline, unpack(ids))
local room = most
if room > 0 then
  room = room - redis.call('ZCARD', timeline)
else
  room = math.huge
end
local scores, stored, written, kept, dues, reply = {}, {}, {}, {}, {}, { '' }
-- By id, of what this call stores: the due time; the timer, if there is more to know of it than the due time.
local latest, keeping = {}, {}
local records -- of all ids

-- The record of the n-th id. Where all timers are new, nobody asks.
local function record(n)
  records = records or redis.call('HMGET', leases, unpack(ids))
  return records[n]
end

-- The timer of the n-th id as it stands: as this call leaves it, if it came before. Most records are made only here,
-- where somebody asks: one takes as long as all else that is done for a timer.
local function standing(n, id)
  if latest[id] then return keeping[id] or fresh(latest[id], 0) end -- @rule conditions-see-own-call
  return found[n] and understand(tonumber(found[n]), record(n))
end

-- The limit of a run of debounced timers stands in the place of a record, as a text that no relay takes for one; with
-- the score that goes with it, since a foreign writer who sets another one ends the run.
local LIMIT = '^debounced (%S+) until (%S+)$' -- see 0090

local function debounced(score, limit)
  local r = fresh(score, 0)
  r.limit = limit
  return r
end

local function limit_text(r) return 'debounced ' .. number(r.score) .. ' until ' .. number(r.limit) end

-- The limit of the run to which the n-th id's timer belongs, as a score; nil if it is in none that has one.
local function limit_of(n, id)
  if latest[id] then return keeping[id] and keeping[id].limit end -- @rule run-sees-own-call
  local score, limit = string.match(found[n] and record(n) or '', LIMIT)
  return score and tonumber(score) == tonumber(found[n]) and tonumber(limit) or nil -- @rule foreign-score-ends-run
end

local function note_stored(n, id, score, expires, occurrence)
  local old, due = standing(n, id), math.max(score, 0)
  local fields = occurrence_is(occurrence) .. due_is(due) .. expires_is(expires)
  if not old then
    note_taken(id, record(n))
    return note(SCHEDULED, id, fields)
  end
  note(
    REPLACED,
    id,
    -- @rule replaced-told
    nonce_is(old.nonce) .. fields .. previous_due_is(old.due) .. adopted_is(old.adopted)
  )
end

local function say(n, word, text)
  local size = #reply
  reply[size + 1], reply[size + 2], reply[size + 3] = n, word, text
end

for n, id in ipairs(ids) do
  local when, options = cut(ARGV[tail + 3 * n - 2])
  local score, unknown = instant(when, now_us)
  if score > LATEST then return fail('OUTOFRANGE', tostring(n - 1)) end -- @rule delay-before-9999
  if unknown then dues[#dues + 1] = score end -- @rule unknown-dues-told
  local word, own, expires, there = nil, nil, 0, found[n] or latest[id] -- @rule create-sees-own-call
  local occurrence = NO_NONCE
  if ends and is_over(ends[n]) then word = 'GIVENUP' end -- @rule late-timer-not-stored
  if here.leaving and not there then word = word or 'GONE' end -- @rule leaving-takes-nothing-in
  if options ~= '' then
    local option, rest = cut(options)
    local limit
    while option ~= '' do
      local kind, value = string.sub(option, 1, 1), tonumber(string.sub(option, 2))
      if kind == 'o' then
        occurrence = unhex(string.sub(option, 2))
        word = word or (there and standing(n, id).occurrence == occurrence and 'UNCHANGED') -- @rule living-occurrence-stays
      elseif kind == 'e' then
        expires = math.max(value, 1e-6) -- 0 in a record is never
      elseif kind == 'x' then
        expires = math.min((math.floor(score * 1e6 + 0.5) + value) / 1e6, LATEST) -- @rule expiry-in-microseconds
      elseif kind == 'c' then
        word = word or (there and 'UNCHANGED') -- @rule create-spares
      elseif kind == '<' then
        word = word or (there and standing(n, id).due <= score and 'UNCHANGED') -- @rule earliest-stands
      elseif kind == '>' then
        word = word or (there and standing(n, id).due >= score and 'UNCHANGED') -- @rule latest-stands
      elseif kind == 'b' then
        limit = limit_of(n, id) or value and (now_us + value) / 1e6 -- @rule first-limit-holds
        score = math.min(score, limit or score) -- @rule run-is-limited
        dues[#dues] = score -- @rule limited-due-told
      elseif there then
        word = word or refuses(option, standing(n, id), not latest[id] and id) -- @rule own-content-is-another
      else
        word = word or 'GONE' -- @rule condition-needs-a-timer
      end
      option, rest = cut(rest)
    end
    local kept_from_start = expires > 0 or occurrence ~= NO_NONCE
    own = kept_from_start and expiring(score, expires) or limit and debounced(score, limit)
    if own then own.occurrence = occurrence end -- @rule given-occurrence-kept
  end
  if not word and not there then -- @rule full-topic-replaces
    room = room - 1
    if room < 0 then word = 'FULL' end -- @rule topic-limited
  end
  if there and word ~= 'GIVENUP' then
    -- @rule own-call-is-not-under-way
    local shown = told(word or 'REPLACED', found[n], not latest[id] and record(n))
    say(n, shown, word and number(standing(n, id).due) or '')
  elseif word then
    say(n, word, '')
  end
  if not word then
    local size = #written
    if JOURNAL then note_stored(n, id, score, expires, occurrence) end
    latest[id] = score
    if own or there then keeping[id] = own or nil end
    scores[2 * size + 1], scores[2 * size + 2] = number(own and own.score or score), id
    stored[2 * size + 1], stored[2 * size + 2] = id, ARGV[tail + 3 * n - 1]
    written[size + 1] = id
  end
end

if #written > 0 then
  local before = head()
  if JOURNAL then append(now_us) end -- @rule schedule-noted
  redis.call('ZADD', timeline, unpack(scores)) -- @rule schedule-begins-with-zadd
  redis.call('HDEL', leases, unpack(written)) -- @rule schedule-clears-record
  redis.call('HSET', payloads, unpack(stored))
  for id, r in pairs(keeping) do -- @rule expiry-written
    kept[#kept + 1], kept[#kept + 2] = id, r.limit and limit_text(r) or pack(r) -- @rule limit-written
  end
  if #kept > 0 then redis.call('HSET', leases, unpack(kept)) end
  hint(channel, before, head()) -- @rule schedule-hints
end

reply[1] = struct.pack('<' .. string.rep('d', #dues), unpack(dues))
return answer(reply)
