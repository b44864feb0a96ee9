-- bulk/guarded_load.lua: insert one batch of a sweep, once.
--
-- KEYS    timeline zset, payloads hash, leases hash, marks hash
-- Uses    bulk_columns
-- ARGV[1] channel of wake hints
-- ARGV[2] epoch of the marks under which the plan was made
-- ARGV[3] plan
-- ARGV[4] batch, with a name of its staging before it
-- ARGV[5] the rows' versions, 19 digits each, one behind the other; or one for all
-- ARGV[6] '' if none expires; else of each timer the score at which it does, or nothing, and ';'
-- ARGV[7] scores, [8] timer_ids, [9] envelopes: an array in MessagePack each, of one text for each timer; each
--         timer once. One argument for each text of 500 timers would be a third of what this call takes the server.
-- Returns { 'LOADED' | 'DONE', how many were inserted, were alive, had been touched }: the same numbers each time
--         { 'STALE_PLAN' }           these marks are not the plan's, or abandoned: nothing was done
--         error WRONGKEYTYPE; Redis' own error for what is no score, with nothing written
--         error OOM from Redis, with nothing written, since ZADD, or the journal's XADD, is the first write
-- Race    a timer that was delivered, cancelled or replaced since the plan read its row: it lives, or left a mark.
--         So neither does the row bring it back, nor does it take the place of a newer intent.
-- Race    a load that is run again, after a crash or beside itself: the ledger is written last and in the same
--         step, so that a batch that is in it is in Redis, and no other is.
-- Race    a Redis that lost the marks: it lost their epoch as well, and nothing is loaded blindly.

local bad = wrong_type()
if bad then return bad end

local entry = 'b' .. ARGV[3] .. ':' .. ARGV[4] -- @rule ledger-by-plan
local epoch, plan, done, any = unpack(redis.call('HMGET', MARKS, 'epoch', 'plan', entry, 'any'))
-- @rule marks-are-the-plans
if epoch ~= ARGV[2] or plan ~= ARGV[3] or are_abandoned() then return answer({ 'STALE_PLAN' }) end
if done then -- @rule ledger-read
  local loaded, live, marked = struct.unpack('<I4I4I4', done)
  return answer({ 'DONE', loaded, live, marked })
end

scores, ids, envelopes = cmsgpack.unpack(ARGV[7]), cmsgpack.unpack(ARGV[8]), cmsgpack.unpack(ARGV[9])
local size, fields = #ids, {}
if any then
  for n, id in ipairs(ids) do
    fields[2 * n - 1], fields[2 * n] = 't' .. id, 'f' .. id
  end
end
local found = redis.call('ZMSCORE', KEYS[1], unpack(ids))
local marks = any and redis.call('HMGET', MARKS, unpack(fields))
local records = JOURNAL and redis.call('HMGET', KEYS[3], unpack(ids))
local one = #ARGV[5] == 19

-- Whether the row's intent is over: something happened to the timer since, or a newer row came.
local function is_over(n)
  local version = one and ARGV[5] or string.sub(ARGV[5], 19 * n - 18, 19 * n) -- @rule version-by-row
  return marks[2 * n - 1] or marks[2 * n] and version < marks[2 * n] -- @rule touches-and-versions-compared
end

local live, marked = 0, 0
for n = 1, size do
  if found[n] then -- @rule living-left-alone
    live = live + 1
  elseif marks and is_over(n) then -- @rule marks-read
    marked = marked + 1
  else
    chosen[n - live - marked] = n
  end
end

local function note_loaded(expires)
  for _, n in ipairs(chosen) do
    note_taken(ids[n], records[n])
    note(SCHEDULED, ids[n], due_is(tonumber(scores[n])) .. expires_is(expires[n] or 0)) -- @rule load-noted
  end
end

add_chosen(ARGV[1], ARGV[6], note_loaded)
redis.call('HSET', MARKS, entry, struct.pack('<I4I4I4', #chosen, live, marked)) -- @rule ledger-written
return answer({ 'LOADED', #chosen, live, marked })
