-- bulk/apply.lua: insert rows of a stream's batch, each timer once a batch.
--
-- KEYS    timeline zset, payloads hash, leases hash, ledger hash
-- Uses    bulk_columns
--           ledger HASH  BATCH -> the number of the newest batch; and all timers on which that one has decided, see
--                        `ledger_names`
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         channel text              of wake hints
--         keep s                    for which the ledger is kept from now on
--         batch count               its number; a newer one has a higher
--         expiring_at text          '' if none expires; else of each timer the score at which it does, or nothing, and ';'
--         packed_scores msgpack     an array of one text for each timer, as the next two are; each timer once
--         packed_ids msgpack
--         packed_envelopes msgpack
-- Returns { 'APPLIED', how many were inserted, how many the ledger had }
--         { 'STALE', the number of a newer batch }: nothing was done
--         error WRONGKEYTYPE; Redis' own error for an invalid score, with nothing written
--         error OOM from Redis, with nothing written, since ZADD, or the journal's XADD, is the first write
-- Race    a batch that Spark runs again after a kill, when what it had inserted was delivered, cancelled or moved: the
--         ledger is written in the step that inserts the timers, so the batch leaves them as they are.
-- Race    a task of a driver that was killed, which goes on while the next driver has finished its batch and begun a
--         newer one. The newer batch has put its ledger in the place of the old one, in which the task would find what
--         it has to leave alone. So nothing of a batch is taken once the ledger has a newer one.
-- Order   ZADD comes before HSET, as in bulk/insert.lua. The old ledger goes behind ZADD too: a delete as the first write
--         would have a full Redis take the rest.

local BATCH = '\1' -- no id has control characters

local bad = wrong_type()
if bad then return bad end

read_columns()
local names = ledger_names()
local known = redis.call('HMGET', ledger, BATCH, unpack(names))
local newest = tonumber(known[1] or nil)
if newest and newest > batch then return answer({ 'STALE', string.format('%.0f', newest) }) end -- @rule newer-batch-refuses
local same = newest == batch -- @rule older-ledger-void

look(false)
local entries = { BATCH, string.format('%.0f', batch) }
for n, name in ipairs(names) do
  if not (same and known[n + 1]) then -- @rule batch-ledger-read
    chosen[#chosen + 1] = n
    entries[#entries + 1], entries[#entries + 2] = name, ''
  end
end

add_chosen() -- @rule timers-before-batch-ledger
if #chosen > 0 then
  if newest and not same then redis.call('UNLINK', ledger) end -- @rule older-ledger-goes
  redis.call('HSET', ledger, unpack(entries)) -- @rule batch-ledger-written
end
redis.call('EXPIRE', ledger, keep) -- @rule batch-ledger-expires
return answer({ 'APPLIED', #chosen, #ids - #chosen })
