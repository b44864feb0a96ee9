-- bulk/apply.lua: schedule, cancel and move timers as the rows of a load say, each timer once a batch.
--
-- KEYS    timeline zset, payloads hash, leases hash, ledger hash, marks hash
-- Uses    bulk_columns
--           ledger HASH  BATCH -> the number of the newest batch; and all timers on which that one has decided, see
--                        `ledger_names`
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         channel text              of wake hints
--         keep s                    for which the ledger is kept from now on
--         batch text                its number, and a newer one has a higher; '' without a ledger
--         ops text                  '' if all rows schedule; else of each row 's' schedule, 'c' cancel, 'm' move: change
--                                   the due time of a timer that is there
--         expiring_at text          '' if none expires; else of each timer the score at which it does, or nothing, and ';'
--         packed_scores msgpack     an array of one text for each timer, as the next two are; each timer once
--         packed_ids msgpack
--         packed_envelopes msgpack  of rows that schedule
-- Returns { 'APPLIED', how many were scheduled, were there and cancelled, were there and moved, the ledger had }
--         { 'STALE', the number of a newer batch }: nothing was done
--         error WRONGKEYTYPE; Redis' own error for an invalid score, with nothing written
--         error OOM from Redis, with nothing written, where a row schedules or moves: ZADD, or the journal's XADD, is
--           the first write then, and a delete is it otherwise
-- Race    a batch that Spark runs again after a kill, when what it had inserted was delivered, cancelled or moved: the
--         ledger is written in the step that inserts the timers, so the batch leaves them as they are.
-- Race    a task of a driver that was killed, which goes on while the next driver has finished its batch and begun a
--         newer one. The newer batch has put its ledger in the place of the old one, in which the task would find what
--         it has to leave alone. So nothing of a batch is taken once the ledger has a newer one.
-- Race    a timer that is replaced, moved or cancelled while a relay delivers it: its record goes, so the relay's token
--         is worth nothing.
-- Order   ZADD comes before HSET, as in bulk/insert.lua. The old ledger goes behind ZADD too: a delete as the first write
--         would have a full Redis take the rest.

local BATCH = '\1' -- no id has control characters

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

look(ops ~= '', string.find(ops, 'm', 1, true))
local gone, entries, moved, skipped = {}, { BATCH, batch }, 0, 0
for n, name in ipairs(names) do
  local op = ops == '' and 's' or string.sub(ops, n, n) -- @rule op-by-row
  if same and known[n + 1] then -- @rule batch-ledger-read
    skipped = skipped + 1
  else
    entries[#entries + 1], entries[#entries + 2] = name, '' -- @rule absent-is-decided
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
if batch ~= '' then
  if #entries > 2 then
    if newest and not same then redis.call('UNLINK', ledger) end -- @rule older-ledger-goes
    redis.call('HSET', ledger, unpack(entries)) -- @rule batch-ledger-written
  end
  redis.call('EXPIRE', ledger, keep) -- @rule batch-ledger-expires
end
return answer({ 'APPLIED', #chosen - moved, cancelled, moved, skipped })
