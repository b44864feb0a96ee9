-- bulk/apply.lua: schedule, cancel and move timers as the rows of a load say, each timer once a batch.
--
-- KEYS    timeline zset, payloads hash, leases hash, ledger hash, even hash, odd hash, marks hash
-- Uses    bulk_columns
--           ledger HASH    BATCH -> the number of the newest batch; and all timers on which that one has decided, see
--                          `ledger_names`, each with the newest version of its rows, or nothing
--           even, odd HASH BEGAN -> when it was begun, microseconds; and timers, named as in the ledger, with the version
--                          of the row that was applied. Two in turns: what is written goes into the one that was
--                          begun last; when that is `remember` old, the other is emptied and begun. So a version is known
--                          for that long at least, and no hash grows without end
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         channel text              of wake hints
--         keep s                    for which the ledger is kept from now on
--         batch text                its number, and a newer one has a higher; '' without a ledger
--         ops text                  '' if all rows schedule; else of each row 's' schedule, 'c' cancel, 'm' move: change
--                                   the due time of a timer that is there
--         remember us               for which versions are to be known; where loads of a topic differ, the shortest counts
--         versions text             '' for rows without; else of each row 19 digits
--         moves text                '' if none does; else of each row the 19 digits of a later one that moves its timer,
--                                   or blanks; the score is that of the later one then
--         expiring_at text          '' if none expires; else of each timer the score at which it does, or nothing, and ';'
--         packed_scores msgpack     an array of one text for each timer, as the next two are; each timer once
--         packed_ids msgpack
--         packed_envelopes msgpack  of rows that schedule
-- Returns { 'APPLIED', how many were scheduled, were there and cancelled, were there and moved, the ledger had, came too late }
--         { 'STALE', the number of a newer batch }: nothing was done
--         error WRONGKEYTYPE; Redis' own error for an invalid score, with nothing written
--         error OOM from Redis, with nothing written, where a row schedules or moves: ZADD, or the journal's XADD, is
--           the first write then, and a delete is it otherwise
-- Race    a batch that Spark runs again after a kill, when what it had inserted was delivered, cancelled or moved: the
--         ledger is written in the step that inserts the timers, so the batch leaves them as they are.
-- Race    a task of a driver that was killed, which goes on while the next driver has finished its batch and begun a
--         newer one. The newer batch has put its ledger in the place of the old one, in which the task would find what
--         it has to leave alone. So nothing of a batch is taken once the ledger has a newer one.
-- Race    rows of a timer that come late, or in another order than they were made: each loses against a newer version,
--         of a cancel, too, if that came first. A move that finds no timer is not remembered: an older row that schedules
--         it would be lost with it. So is a later row of two, of which the second moves what the first has scheduled, taken
--         apart where a version between them was applied.
-- Race    a timer that is replaced, moved or cancelled while a relay delivers it: its record goes, so the relay's token
--         is worth nothing.
-- Order   ZADD comes before HSET, as in bulk/insert.lua. The old ledger goes behind ZADD too: a delete as the first write
--         would have a full Redis take the rest.

local BATCH, BEGAN = '\1', '\1' -- no id has control characters

local bad = wrong_type()
if bad then return bad end

read_columns()
local names, known, newest, same = ledger_names(), {}, nil, false
if batch ~= '' then
  known = redis.call('HMGET', ledger, BATCH, unpack(names))
  newest = tonumber(known[1] or nil)
  -- @rule newer-batch-refuses
  if newest and newest > tonumber(batch) then return answer({ 'STALE', string.format('%.0f', newest) }) end
  same = newest == tonumber(batch) -- @rule older-ledger-void
end

-- What is known of versions: the hash that is written to, its entries, and those of the other one.
local this, begun_anew, seen, seen_before
if versions ~= '' then
  local a = redis.call('HMGET', even, BEGAN, unpack(names))
  local b = redis.call('HMGET', odd, BEGAN, unpack(names))
  this, seen, seen_before = even, a, b
  -- @rule later-versions-written
  if (tonumber(b[1] or nil) or -1) > (tonumber(a[1] or nil) or -1) then
    this, seen, seen_before = odd, b, a
  end
  local began = tonumber(seen[1] or nil)
  if not began or now_us - began >= remember then -- @rule versions-take-turns
    this, seen, seen_before, begun_anew = this == even and odd or even, {}, seen, true
  end
end

-- The op of the n-th row by its versions and what was seen, and the version to remember; nil if it comes too late.
local function newest_of(n, op)
  local at = 19 * n - 18
  local version, later = string.sub(versions, at, at + 18), string.sub(moves, at, at + 18) -- @rule version-of-row
  local one, two = seen[n + 1] or '', seen_before[n + 1] or ''
  local last = one > two and one or two -- @rule both-hashes-read
  if last < version then -- @rule version-compared
    return op, op == 's' and string.find(later, '%d') and later or version -- @rule later-move-remembered
  end
  if last < later then return 'm', later end -- @rule later-move-compared
end

look(ops ~= '' or moves ~= '', ops ~= '' or moves ~= '')
local gone, entries, remembered, moved, skipped, late = {}, { BATCH, batch }, {}, 0, 0, 0
for n, name in ipairs(names) do
  local op, version = ops == '' and 's' or string.sub(ops, n, n), '' -- @rule op-by-row
  if versions ~= '' then
    op, version = newest_of(n, op)
  end
  local decided = same and known[n + 1] -- @rule batch-ledger-read
  if decided and (not version or decided >= version) then -- @rule newer-version-is-another-row
    skipped = skipped + 1
  elseif not op then
    late = late + 1
  else
    entries[#entries + 1], entries[#entries + 2] = name, version -- @rule absent-is-decided
    if versions ~= '' and (op ~= 'm' or found[n]) then -- @rule absent-move-not-remembered
      remembered[#remembered + 1], remembered[#remembered + 2] = name, version
    end
    if op == 'c' then
      gone[#gone + 1] = ids[n] -- also what is not there, as in timeline/cancel.lua
      local r = JOURNAL and found[n] and understand(tonumber(found[n]), records[n])
      if r then
        note(CANCELLED, ids[n], nonce_is(r.nonce) .. due_is(r.due) .. adopted_is(r.adopted)) -- @rule applied-cancel-noted
      elseif JOURNAL then
        note_remains(ids[n])
      end
    elseif op == 's' or found[n] then -- @rule absent-not-moved
      chosen[#chosen + 1] = n
      if op == 'm' then
        moved, moving[n] = moved + 1, understand(tonumber(found[n]), records[n]).expires -- @rule moved-keeps-expiry
      end
    end
  end
end

if JOURNAL and #chosen == 0 then append_always(now_us) end
add_chosen() -- @rule timers-before-batch-ledger
local cancelled = 0
if #gone > 0 then
  redis.call('HDEL', leases, unpack(gone)) -- @rule applied-cancel-clears-record
  redis.call('HDEL', payloads, unpack(gone)) -- @rule applied-cancel-clears-payload
  cancelled = redis.call('ZREM', timeline, unpack(gone)) -- @rule applied-cancel-removes
  mark(gone) -- @rule applied-cancel-marked
end
if #remembered > 0 then
  if begun_anew then
    redis.call('UNLINK', this) -- @rule older-versions-go
    redis.call('HSET', this, BEGAN, string.format('%.0f', now_us)) -- @rule beginning-noted
  end
  redis.call('HSET', this, unpack(remembered)) -- @rule versions-remembered
  redis.call('EXPIRE', this, math.ceil(remember / 500000)) -- @rule versions-expire
end
if batch ~= '' then
  if #entries > 2 then
    if newest and not same then redis.call('UNLINK', ledger) end -- @rule older-ledger-goes
    redis.call('HSET', ledger, unpack(entries)) -- @rule batch-ledger-written
  end
  redis.call('EXPIRE', ledger, keep) -- @rule batch-ledger-expires
end
return answer({ 'APPLIED', #chosen - moved, cancelled, moved, skipped, late })
