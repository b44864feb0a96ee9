-- lib/journal.lua: what the scripts share that change something, for topics with a journal. It is put between the
-- prelude and the script, and does nothing by itself. Elsewhere it is left out, and JOURNAL is nil.
--
-- KEYS[#KEYS] journal STREAM  one entry a call, with one field, 'b': a relay.journal.v1.Batch
-- ARGV[#ARGV] how many changes it keeps at least; it drops whole entries
--
-- A script notes each change that it is going to make, and appends them in one entry before it makes the first:
-- where Redis refuses the entry, nothing has happened. What has to go before the entry asks `may_append` first.
-- docs/reference/journal.md says which kind has which fields.

JOURNAL = KEYS[#KEYS]
local KEEP = tonumber(table.remove(ARGV))
local changes, trimmed = {}, 0

local SCHEDULED, REPLACED, CLAIMED, RECEIVED, EXTENDED, ACKED, NACKED, RELEASED = 1, 2, 3, 4, 5, 6, 7, 8
local RESCHEDULED, DEAD, EXPIRED, REDRIVEN, CANCELLED, RUN, KIND_PARKED, ORPHANED = 9, 10, 11, 12, 13, 14, 15, 16
-- (PARKED by itself is the state of a record.)
local TAKEN, REPAIRED, STALE, GONE, PURGED, TRIMMED, PAUSED, RESUMED = 17, 18, 19, 20, 21, 22, 23, 24
local PROMOTED = 25
local BY_VERB = { ack = ACKED, nack = NACKED, release = RELEASED, reschedule = RESCHEDULED, reject = DEAD }

-- A length as protobuf writes it.
local function varint(n)
  if n < 128 then return string.char(n) end
  return string.char(n % 128 + 128) .. varint(math.floor(n / 128))
end

-- Fields, each behind its tag; '' for what need not be written.
local function bytes(tag, text) return text and text ~= '' and tag .. varint(#text) .. text or '' end
local function double(tag, x) return x ~= 0 and tag .. struct.pack('<d', x) or '' end
local function flag(tag, set) return set == 1 and tag .. '\1' or '' end
local function nonce_is(nonce) return #nonce == 16 and nonce ~= NO_NONCE and '\26\16' .. nonce or '' end
local function occurrence_is(nonce) return nonce ~= NO_NONCE and '\34\16' .. nonce or '' end
local function due_is(due) return double('\41', due) end
local function score_is(score) return double('\49', score) end
local function received_is(received) return flag('\72', received) end
local function expires_is(expires) return double('\97', expires) end
local function previous_due_is(due) return double('\105', due) end
local function refused_is(kind) return '\120' .. string.char(kind) end
local function adopted_is(adopted) return adopted and '\128\1' .. string.char(adopted) or '' end
local function dead_id_is(name) return bytes('\138\1', name) end
local function count_is(n) return '\149\1' .. struct.pack('<I4', n) end

-- When it is due, what has counted so far, and how it is delivered.
local function standing_is(r)
  local fields =
    struct.pack('<BdBI4BI4', 41, r.due, 61, math.min(r.attempts, 4294967295), 69, math.min(r.claims, 4294967295))
  if r.suspect == 0 and r.approximate == 0 then return fields end
  return fields .. flag('\80', r.suspect) .. flag('\88', r.approximate)
end

-- Note one change: its kind, the timer or '', its further fields one behind the other. One string is made.
local function note(kind, id, fields)
  local size = varint(#id)
  changes[#changes + 1] = '\58'
    .. varint(3 + #size + #id + #fields)
    .. '\8'
    .. string.char(kind)
    .. '\18'
    .. size
    .. id
    .. fields
end

-- Note a token that was worth nothing; `r` is nil where there is no timer.
local function note_refusal(id, nonce, kind, r)
  -- @rule refusal-names-lease
  note(r and STALE or GONE, id, nonce_is(nonce) .. refused_is(kind) .. (r and adopted_is(r.adopted) or ''))
end

-- Note that a foreign writer has removed a timer, if a record of ours is left; answers whether one is.
local function note_taken(id, raw)
  local r = unpack_record(raw)
  if r then note(TAKEN, id, nonce_is(r.nonce) .. standing_is(r)) end -- @rule taken-noted
  return r
end

-- Note what is removed of a timer that isn't there.
local function note_remains(id)
  if not note_taken(id, redis.call('HGET', KEYS[3], id)) and redis.call('HEXISTS', KEYS[2], id) == 1 then
    note(REPAIRED, id, '')
  end
end

-- Have Redis refuse now, and not behind the first write, what an entry takes besides XADD. A delete that finds
-- nothing, and reads of nothing.
local function may_append()
  redis.call('XDEL', JOURNAL, '0-0')
  redis.call('XRANGE', JOURNAL, '0-0', '0-0')
  redis.call('XREVRANGE', JOURNAL, '0-0', '0-0')
end

-- Have Redis refuse now whatever it would refuse of an entry to come. No stream takes this id, so nothing is added; any
-- other refusal is the one that the entry would meet.
local function may_add()
  if not string.find(redis.pcall('XADD', JOURNAL, '0-0', 'b', '').err, '0-0', 1, true) then
    redis.call('XADD', JOURNAL, '0-0', 'b', '')
  end
end

-- The same as before, but no letter is kept of a death that can't be recorded: each claim would keep one more.
local write_letters = bury
local function bury(dead, now_us)
  if #dead > 0 then may_append() end -- @rule append-asked-before-burial
  return write_letters(dead, now_us)
end

-- Note the dead as `bury` takes them; `names` is what it answers.
local function note_deaths(dead, names)
  for n, each in ipairs(dead) do
    local id, r, _, reason, _, nonce = unpack(each)
    local why = reason == 'expired' and expires_is(r.expires) or bytes('\114', reason)
    note(
      reason == 'expired' and EXPIRED or DEAD, -- @rule expired-noted-as-expired
      id,
      nonce_is(nonce)
        .. occurrence_is(r.occurrence)
        .. standing_is(r)
        .. received_is(r.received)
        .. why
        .. adopted_is(r.adopted)
        .. dead_id_is(names[n]) -- @rule letter-noted
    )
  end
end

-- The numbers of the first and the last change in an entry; 0 if it is none of ours.
local function numbers_in(entry)
  local text = entry and entry[2][2] or ''
  if #text < 29 or string.sub(text, 1, 3) ~= '\8\1\17' then return 0, 0 end
  return struct.unpack('<I8', text, 13), (struct.unpack('<I8', text, 22))
end

-- The oldest entries, where all changes up to number `last` are too many: at most about twice as many changes as
-- this call appends, so that a limit that was lowered blocks nobody.
local function too_many(last)
  local names, after, most = {}, '-', 2 * #changes + 8
  while trimmed < most do -- @rule trim-bounded
    local entry = redis.call('XRANGE', JOURNAL, after, '+', 'COUNT', 1)[1]
    local first, newest = numbers_in(entry)
    if not entry or newest > last - KEEP then break end -- @rule trim-spares-kept
    trimmed = trimmed + newest - first + 1 -- @rule trimmed-counts-changes
    names[#names + 1], after = entry[1], '(' .. entry[1]
  end
  return names
end

-- Append what was noted. `nonce` and `score` are those of a claim.
local function append(now_us, nonce, score)
  if #changes == 0 then return end -- @rule no-empty-entry
  local _, before = numbers_in(redis.call('XREVRANGE', JOURNAL, '+', '-', 'COUNT', 1)[1])
  local last = before + #changes -- @rule changes-numbered-on
  local names = last > KEEP and too_many(last) or {} -- @rule journal-trimmed
  redis.call(
    'XADD',
    JOURNAL,
    '*',
    'b',
    struct.pack('<BBBI8BI8BI8', 8, 1, 17, now_us, 25, before + 1, 33, last)
      .. bytes('\42', nonce)
      .. (score and score_is(score) or '')
      .. table.concat(changes)
  )
  if #names > 0 then redis.call('XDEL', JOURNAL, unpack(names)) end
end

-- The same, and a delete comes first, so that a Redis at its maxmemory takes the rest.
local function append_always(now_us, nonce, score)
  if #changes > 0 then redis.call('XDEL', JOURNAL, '0-0') end -- @rule entry-behind-a-delete
  append(now_us, nonce, score)
end

-- What the script returns, and how many changes the journal has lost.
local reply_of = answer
local function answer(reply) return { reply_of(reply), trimmed } end -- @rule journal-passes-refused-hint
