-- timeline/schedule.lua: store timers.
--
-- KEYS    timeline zset, payloads hash, leases hash
-- Uses    conditions
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         each_until text           and the same of each timer, or ''; see lib/conditions.lua
--         channel text              of wake hints
--         most count                timers that the topic may hold, 0: no limit
-- Tail    of each timer: timer_id, when, envelope
--           when: see `instant`; and then, if wanted, each behind a semicolon and in this order:
--             'e' and a score          it expires then
--             'x' and microseconds     it expires this long after its due time
--             'c'                      only if there is no such timer
--             'p', 'd' and a score     only if; see `refuses`
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
local latest, keeping = {}, {} -- by id, of what this call stores: the due time; the record of one that expires
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

local function note_stored(n, id, score, expires)
  local old, due = standing(n, id), math.max(score, 0)
  if not old then
    note_taken(id, record(n))
    return note(SCHEDULED, id, due_is(due) .. expires_is(expires))
  end
  note(
    REPLACED,
    id,
    -- @rule replaced-told
    nonce_is(old.nonce) .. due_is(due) .. expires_is(expires) .. previous_due_is(old.due) .. adopted_is(old.adopted)
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
  local word, expires, there = nil, 0, found[n] or latest[id] -- @rule create-sees-own-call
  if ends and is_over(ends[n]) then word = 'GIVENUP' end -- @rule late-timer-not-stored
  if here.leaving and not there then word = word or 'GONE' end -- @rule leaving-takes-nothing-in
  if options ~= '' then
    local option, rest = cut(options)
    while option ~= '' do
      local kind, value = string.sub(option, 1, 1), tonumber(string.sub(option, 2))
      if kind == 'e' then
        expires = math.max(value, 1e-6) -- 0 in a record is never
      elseif kind == 'x' then
        expires = math.min((math.floor(score * 1e6 + 0.5) + value) / 1e6, LATEST) -- @rule expiry-in-microseconds
      elseif kind == 'c' then
        word = word or (there and 'UNCHANGED') -- @rule create-spares
      elseif there then
        word = word or refuses(option, standing(n, id))
      else
        word = word or 'GONE' -- @rule condition-needs-a-timer
      end
      option, rest = cut(rest)
    end
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
    local size, own = #written, expires > 0 and expiring(score, expires)
    if JOURNAL then note_stored(n, id, score, expires) end
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
    kept[#kept + 1], kept[#kept + 2] = id, pack(r)
  end
  if #kept > 0 then redis.call('HSET', leases, unpack(kept)) end
  hint(channel, before, head()) -- @rule schedule-hints
end

reply[1] = struct.pack('<' .. string.rep('d', #dues), unpack(dues))
return answer(reply)
