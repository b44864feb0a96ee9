-- lib/journal.lua: what the scripts share that change something, for topics with a journal. It is put between the
-- prelude and the script, and does nothing by itself. Elsewhere it is left out, and JOURNAL is nil.
--
-- KEYS[#KEYS] journal STREAM  one entry a call, with one field, 'b': a relay.journal.v1.Batch
-- ARGV[#ARGV] how many changes it keeps at least; it drops whole entries. A space and the relay's name follow, if it has one,
--             and a space and the principal, where a person asks
--
-- A script notes each change that it is going to make, and appends them in one entry before it makes the first:
-- where Redis refuses the entry, nothing has happened. What has to go before the entry asks `may_append` first.
-- docs/reference/journal.md says which kind has which fields.

JOURNAL = KEYS[#KEYS]
local KEEP = table.remove(ARGV)
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

-- What a change says, each field behind its tag; '' for what need not be written. A script may have 200 locals, and so the
-- tags are not seen outside.
local nonce_is, occurrence_is, due_is, score_is, standing_is, received_is, expires_is, previous_due_is, reason_is
local refused_is, adopted_is, dead_id_is, count_is, note, batch_of, numbers_in
do
  -- A tag: the field's number in relay/journal/v1/journal.proto, and how its value is written.
  local VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
  local function tag(field, written) return varint(8 * field + written) end
  local function bytes(tagged, text) return text and text ~= '' and tagged .. varint(#text) .. text or '' end
  local function double(tagged, x) return x ~= 0 and tagged .. struct.pack('<d', x) or '' end
  local function flag(tagged, set) return set == 1 and tagged .. '\1' or '' end

  local KIND, ID, NONCE, OCCURRENCE, DUE, SCORE =
    tag(1, VARINT), tag(2, BYTES), tag(3, BYTES), tag(4, BYTES), tag(5, FIXED64), tag(6, FIXED64)
  local ATTEMPTS, CLAIMS, RECEIVED, SUSPECT = tag(7, FIXED32), tag(8, FIXED32), tag(9, VARINT), tag(10, VARINT)
  local APPROXIMATE, EXPIRES, PREVIOUS_DUE, REASON = tag(11, VARINT), tag(12, FIXED64), tag(13, FIXED64), tag(14, BYTES)
  local BATCH_RECORD = tag(7, BYTES)
  local REFUSED, ADOPTED, DEAD_ID, COUNT = tag(15, VARINT), tag(16, VARINT), tag(17, BYTES), tag(18, FIXED32)
  local PREVIOUS_DEAD_ID, ERROR = tag(19, BYTES), tag(20, BYTES)
  local MOST_OF_ERROR = 200 -- bytes

  function nonce_is(nonce) return nonce ~= NO_NONCE and bytes(NONCE, #nonce == 16 and nonce) or '' end
  function occurrence_is(nonce) return nonce ~= NO_NONCE and bytes(OCCURRENCE, nonce) or '' end
  function due_is(due) return double(DUE, due) end
  function score_is(score) return double(SCORE, score) end
  function received_is(received) return flag(RECEIVED, received) end
  function expires_is(expires) return double(EXPIRES, expires) end
  function previous_due_is(due) return double(PREVIOUS_DUE, due) end
  -- Why, and what went wrong if that is given.
  function reason_is(reason, text)
    return bytes(REASON, reason) .. bytes(ERROR, text and string.sub(text, 1, MOST_OF_ERROR)) -- @rule error-noted-in-short
  end
  function refused_is(kind) return REFUSED .. string.char(kind) end
  function adopted_is(adopted) return adopted and ADOPTED .. string.char(adopted) or '' end
  function dead_id_is(name, before) return bytes(DEAD_ID, name) .. bytes(PREVIOUS_DEAD_ID, before) end
  function count_is(n) return COUNT .. struct.pack('<I4', n) end

  -- When it is due, what has counted so far, and how it is delivered.
  function standing_is(r)
    local attempts, claims = math.min(r.attempts, MOST_COUNTED), math.min(r.claims, MOST_COUNTED)
    local counts = struct.pack('<c1I4c1I4', ATTEMPTS, attempts, CLAIMS, claims)
    return DUE .. struct.pack('<d', r.due) .. counts .. flag(SUSPECT, r.suspect) .. flag(APPROXIMATE, r.approximate)
  end

  -- Note one change: its kind, the timer or '', its further fields one behind the other.
  function note(kind, id, fields)
    local record = KIND .. string.char(kind) .. ID .. varint(#id) .. id .. fields
    changes[#changes + 1] = bytes(BATCH_RECORD, record)
  end

  local RELAY, BY
  KEEP, RELAY, BY = string.match(KEEP, '^(%d+) ?(%S*) ?(.*)$')
  KEEP = tonumber(KEEP)
  local BATCH_VERSION, BATCH_NOW, BATCH_FIRST, BATCH_LAST =
    tag(1, VARINT), tag(2, FIXED64), tag(3, FIXED64), tag(4, FIXED64)
  local BATCH_NONCE, BATCH_SCORE, BATCH_HAND_OVER, BATCH_BY, BATCH_RELAY =
    tag(5, BYTES), tag(6, FIXED64), tag(8, BYTES), tag(9, BYTES), tag(10, BYTES)
  local HEAD = '<c1Bc1I8c1I8c1I8' -- how an entry begins: version, time, and the numbers of its first and last change
  local FIRST_AT, LAST_AT, HEAD_SIZE = 13, 22, 29
  local BEGINS = BATCH_VERSION .. '\1' .. BATCH_NOW

  -- An entry of what was noted. `nonce` and `score` are those of a claim.
  function batch_of(now_us, first, last, nonce, score, hand_over)
    local head = struct.pack(HEAD, BATCH_VERSION, 1, BATCH_NOW, now_us, BATCH_FIRST, first, BATCH_LAST, last)
    local claim = bytes(BATCH_NONCE, nonce) .. (score and double(BATCH_SCORE, score) or '')
    local who = bytes(BATCH_BY, BY) .. bytes(BATCH_RELAY, RELAY) -- @rule who-asked-is-noted
    return head .. claim .. bytes(BATCH_HAND_OVER, hand_over) .. who .. table.concat(changes)
  end

  -- The numbers of the first and the last change in an entry; 0 if it is not ours.
  function numbers_in(entry)
    local text = entry and entry[2][2] or ''
    if #text < HEAD_SIZE or string.sub(text, 1, #BEGINS) ~= BEGINS then return 0, 0 end
    return struct.unpack('<I8', text, FIRST_AT), (struct.unpack('<I8', text, LAST_AT))
  end
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
  if not note_taken(id, redis.call('HGET', leases, id)) and redis.call('HEXISTS', payloads, id) == 1 then
    note(REPAIRED, id, '')
  end
end

-- Have Redis refuse now, and not behind the first write, what an entry takes besides XADD. A delete that finds
-- nothing, and reads of nothing.
local function may_append() -- see 0031
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

-- Append what was noted. `nonce` and `score` are those of a claim; `hand_over` see lib/move.lua.
local function append(now_us, nonce, score, hand_over)
  if #changes == 0 then return end -- @rule no-empty-entry
  local _, before = numbers_in(redis.call('XREVRANGE', JOURNAL, '+', '-', 'COUNT', 1)[1])
  local last = before + #changes -- @rule changes-numbered-on
  local names = last > KEEP and too_many(last) or {} -- @rule journal-trimmed
  redis.call('XADD', JOURNAL, '*', 'b', batch_of(now_us, before + 1, last, nonce, score, hand_over))
  if #names > 0 then redis.call('XDEL', JOURNAL, unpack(names)) end
end

-- The same, and a delete comes first, so that a Redis at its maxmemory takes the rest.
local function append_always(now_us, nonce, score, hand_over)
  if #changes > 0 then redis.call('XDEL', JOURNAL, '0-0') end -- @rule entry-behind-a-delete
  append(now_us, nonce, score, hand_over)
end

-- What the script returns, and how many changes the journal has lost.
local reply_of = answer
local function answer(reply) return { reply_of(reply), trimmed } end -- @rule journal-passes-refused-hint
