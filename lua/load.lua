-- load.lua: insert one batch of a sweep, once.
--
-- KEYS    timeline, payloads, leases, marks
-- ARGV[1] channel of wake hints
-- ARGV[2] epoch of the marks under which the plan was made
-- ARGV[3] plan
-- ARGV[4] batch
-- ARGV[5] the rows' versions, 19 digits each, one behind the other; or one for all
-- ARGV    then three for each timer, each timer once: timer_id, score and, if wanted, ';' and the score at which
--         it expires, envelope
-- Returns { 'LOADED' | 'DONE', how many were inserted, were alive, had been touched }: the same numbers each time
--         { 'STALE_PLAN' }           these marks are not the plan's: nothing was done
--         error WRONGKEYTYPE; error BADSCORE <timer_id>
--         error OOM from Redis, with nothing written, since ZADD, or the journal's XADD, is the first write
-- Race    a timer that was delivered, cancelled or replaced since the plan read its row: it lives, or left a mark.
--         So neither does the row bring it back, nor does it take the place of a newer intent.
-- Race    a load that is run again, after a crash or beside itself: the ledger is written last and in the same
--         step, so that a batch that is in it is in Redis, and no other is.
-- Race    a Redis that lost the marks: it lost their epoch as well, and nothing is loaded blindly.

MARKS = KEYS[4]
local bad = wrong_type()
if bad then return bad end

local entry = 'b' .. ARGV[3] .. ':' .. ARGV[4]
local epoch, plan, done, any = unpack(redis.call('HMGET', MARKS, 'epoch', 'plan', entry, 'any'))
if epoch ~= ARGV[2] or plan ~= ARGV[3] then return answer({ 'STALE_PLAN' }) end
if done then
  local loaded, live, marked = struct.unpack('<I4I4I4', done)
  return answer({ 'DONE', loaded, live, marked })
end

local ids, fields = {}, {}
for i = 6, #ARGV, 3 do
  local n = #ids + 1
  ids[n], fields[2 * n - 1], fields[2 * n] = ARGV[i], 't' .. ARGV[i], 'f' .. ARGV[i]
end
local found = redis.call('ZMSCORE', KEYS[1], unpack(ids))
local marks = any and redis.call('HMGET', MARKS, unpack(fields))
local records = JOURNAL and redis.call('HMGET', KEYS[3], unpack(ids))
local one = #ARGV[5] == 19

-- Whether the row's intent is over: something happened to the timer since, or a newer row came.
local function is_over(n)
  if not marks then return false end
  local version = one and ARGV[5] or string.sub(ARGV[5], 19 * n - 18, 19 * n)
  return marks[2 * n - 1] or marks[2 * n] and version < marks[2 * n]
end

local scores, loaded, stored, kept, live, marked = {}, {}, {}, {}, 0, 0

local function insert(n, id, score, expires)
  local r = fresh(score, expires)
  if expires > 0 then
    r.score = own_score(0, score) -- as schedule.lua does
    kept[#kept + 1], kept[#kept + 2] = id, pack(r)
  end
  if JOURNAL then
    note_taken(id, records[n])
    note(SCHEDULED, id, due_is(r.due) .. expires_is(expires))
  end
  return number(r.score)
end

for n, id in ipairs(ids) do
  local i = 3 * n + 3
  if found[n] then
    live = live + 1
  elseif is_over(n) then
    marked = marked + 1
  else
    local text, expires = cut(ARGV[i + 1])
    local score = tonumber(text)
    if not score or score > LATEST or score < 0 then return fail('BADSCORE', id) end
    if JOURNAL or expires ~= '' then text = insert(n, id, score, tonumber(expires) or 0) end
    local m = #loaded
    loaded[m + 1] = id
    scores[2 * m + 1], scores[2 * m + 2] = text, id
    stored[2 * m + 1], stored[2 * m + 2] = id, ARGV[i + 2]
  end
end

if #loaded > 0 then
  local before = head()
  if JOURNAL then append(time_us()) end
  redis.call('ZADD', KEYS[1], unpack(scores))
  redis.call('HDEL', KEYS[3], unpack(loaded))
  redis.call('HSET', KEYS[2], unpack(stored))
  if #kept > 0 then redis.call('HSET', KEYS[3], unpack(kept)) end
  hint(ARGV[1], before, head())
end
redis.call('HSET', MARKS, entry, struct.pack('<I4I4I4', #loaded, live, marked))
return answer({ 'LOADED', #loaded, live, marked })
