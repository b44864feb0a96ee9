-- bulk/insert.lua: insert timers of a load's run, each of them once.
--
-- KEYS    timeline zset, payloads hash, leases hash, ledger set
-- Uses    bulk_columns
--           ledger SET   the timers on which the run has decided: see `ledger_names`
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         channel text              of wake hints
--         keep s                    for which the ledger is kept from now on
--         mode text                 which timer stands where one lives: 'c' the one that lives, '<' or '>' the one that is due
--                                   earlier or later, '' the row's
--         expiring_at text          '' if none expires; else of each timer the score at which it does, or nothing, and ';'
--         packed_scores msgpack     an array of one text for each timer, as the next two are; each timer once
--         packed_ids msgpack
--         packed_envelopes msgpack
-- Returns { how many were inserted, how many the ledger had, how many were alive and spared }
--         error WRONGKEYTYPE; Redis' own error for an invalid score, with nothing written
--         error OOM from Redis, with nothing written, since ZADD, or the journal's XADD, is the first write
-- Race    a load that is killed and repeated, after what it had inserted was delivered, cancelled or moved: the ledger
--         is written in the step that inserts the timers, so the repeated load leaves them as they are.
-- Race    two tasks with the same rows, as Spark starts them when it speculates: the second finds the ledger written.
-- Race    a timer that is replaced while a relay delivers it: its record goes, so the relay's token is worth nothing.
-- Order   ZADD comes before SADD. If Redis refused the second, the timer would come once more; the other way round it
--         would be lost.

local bad = wrong_type()
if bad then return bad end

read_columns()
local names = ledger_names()
local known = redis.call('SMISMEMBER', ledger, unpack(names))
local spare = mode ~= '' -- @rule spare-asked-for
look(spare, spare and mode ~= 'c')

-- Whether the timer that lives stands, and not the n-th row.
local function stays(n)
  if mode == 'c' then return true end
  local due, score = understand(tonumber(found[n]), records[n]).due, tonumber(scores[n])
  if mode == '<' then return due <= score end -- @rule earliest-row-stands
  return due >= score -- @rule latest-row-stands
end

-- What is inserted, and all that the run decides on here. It has decided on a timer that it spared, too: repeated
-- when that one has ended, it does not bring it back.
local decided, live = {}, 0
for n, name in ipairs(names) do
  if known[n] == 0 then -- @rule run-ledger-read
    decided[#decided + 1] = name -- @rule spared-is-decided
    if spare and found[n] and stays(n) then -- @rule living-spared
      live = live + 1
    else
      chosen[#chosen + 1] = n
    end
  end
end

add_chosen() -- @rule timers-before-ledger
if #decided > 0 then redis.call('SADD', ledger, unpack(decided)) end -- @rule run-ledger-written
redis.call('EXPIRE', ledger, keep) -- @rule run-ledger-expires
return answer({ #chosen, #ids - #decided, live })
