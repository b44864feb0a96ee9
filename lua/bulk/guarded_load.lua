-- bulk/guarded_load.lua: insert one batch of a sweep, once.
--
-- KEYS    timeline zset, payloads hash, leases hash, marks hash
-- Uses    bulk_columns
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         channel text              of wake hints
--         epoch text                of the marks under which the plan was made
--         plan text
--         batch text                with a name of its staging before it
--         versions text             of the rows, 19 digits each, one behind the other; or one for all
--         expiring_at text          '' if none expires; else of each timer the score at which it does, or nothing, and ';'
--         packed_scores msgpack     an array of one text for each timer, as the next two are; each timer once. One argument
--                                   for each text of 500 timers would be a third of what this call takes the server
--         packed_ids msgpack
--         packed_envelopes msgpack
-- Returns { 'LOADED' | 'DONE', how many were inserted, were alive, had been touched }: the same numbers each time
--         { 'STALE_PLAN' }           these marks are not the plan's, or abandoned: nothing was done
--         error WRONGKEYTYPE; Redis' own error for an invalid score, with nothing written
--         error OOM from Redis, with nothing written, since ZADD, or the journal's XADD, is the first write
-- Race    a timer that was delivered, cancelled or replaced since the plan read its row: it lives, or left a mark.
--         So neither does the row bring it back, nor does it take the place of a newer intent.
-- Race    a load that is run again, after a crash or beside itself: the ledger is written last and in the same
--         step, so that a batch that is in it is in Redis, and no other is.
-- Race    a Redis that lost the marks: it lost their epoch as well, and nothing is loaded blindly.

local bad = wrong_type()
if bad then return bad end

local entry = 'b' .. plan .. ':' .. batch -- @rule ledger-by-plan
local open_epoch, open_plan, done, any = unpack(redis.call('HMGET', marks, 'epoch', 'plan', entry, 'any'))
-- @rule marks-are-the-plans
if epoch ~= open_epoch or plan ~= open_plan or are_abandoned() then return answer({ 'STALE_PLAN' }) end
if done then -- @rule ledger-read
  local loaded, live, marked = struct.unpack('<I4I4I4', done)
  return answer({ 'DONE', loaded, live, marked })
end

read_columns()
local size, fields = #ids, {}
if any then
  for n, id in ipairs(ids) do
    fields[2 * n - 1], fields[2 * n] = 't' .. id, 'f' .. id
  end
end
look(true)
local touched = any and redis.call('HMGET', marks, unpack(fields))
local one = #versions == 19

-- Whether the row's intent is over: something happened to the timer since, or a newer row came.
local function is_over(n)
  local version = one and versions or string.sub(versions, 19 * n - 18, 19 * n) -- @rule version-by-row
  return touched[2 * n - 1] or touched[2 * n] and version < touched[2 * n] -- @rule touches-and-versions-compared
end

local live, marked = 0, 0
for n = 1, size do
  if found[n] then -- @rule living-left-alone
    live = live + 1
  elseif touched and is_over(n) then -- @rule marks-read
    marked = marked + 1
  else
    chosen[n - live - marked] = n
  end
end

add_chosen()
redis.call('HSET', marks, entry, struct.pack('<I4I4I4', #chosen, live, marked)) -- @rule ledger-written
return answer({ 'LOADED', #chosen, live, marked })
