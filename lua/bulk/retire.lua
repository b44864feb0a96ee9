-- bulk/retire.lua: take out of Redis what newer rows of the cold store have replaced or cancelled.
--
-- KEYS    timeline zset, payloads hash, leases hash, retiring hash, marks hash
--           retiring HASH  version of a write to the cold store -> token of whoever may retire for it
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         version text              of the rows, 19 digits
--         token text
-- Tail    timer_ids
-- Returns { 'OK', how many lived }
--         { 'FENCED' }               the token is not the version's: somebody else goes on with this
--         error WRONGKEYTYPE
-- Race    a write that is slow, and a sweep that has finished it in its place and loaded its rows: what the slow one
--         would then remove is what it has written.
-- Race    a delivery of the timer that these rows replace, and its ACK: whether it comes before this or behind it,
--         the rows stand. So what touched the timer until now is forgotten, and older rows are held off by the version.

local bad = wrong_type()
if bad then return bad end
if redis.call('HGET', retiring, version) ~= token then return answer({ 'FENCED' }) end -- @rule retirement-fenced

local ids, seen = {}, {}
for i = tail, #ARGV do
  local id = ARGV[i]
  if not seen[id] then
    ids[#ids + 1], seen[id] = id, true
  end
end
if JOURNAL then
  local scores = redis.call('ZMSCORE', timeline, unpack(ids))
  local records = redis.call('HMGET', leases, unpack(ids))
  for n, id in ipairs(ids) do
    local r = scores[n] and understand(tonumber(scores[n]), records[n])
    if r then -- @rule retirement-noted
      note(CANCELLED, id, nonce_is(r.nonce) .. due_is(r.due) .. adopted_is(r.adopted))
    else
      note_remains(id)
    end
  end
  append_always(now_us)
end
redis.call('HDEL', leases, unpack(ids)) -- @rule retirement-clears-record
redis.call('HDEL', payloads, unpack(ids)) -- @rule retirement-clears-payload
local lived = redis.call('ZREM', timeline, unpack(ids))

if marking and not are_abandoned() then -- @rule retirement-marks-unless-abandoned
  local names, newest, forgotten = {}, { 'any', '1' }, {}
  for n, id in ipairs(ids) do
    names[n] = 'f' .. id
  end
  local floors = redis.call('HMGET', marks, unpack(names))
  for n, id in ipairs(ids) do
    if not floors[n] or floors[n] <= version then -- @rule newest-version-wins
      newest[#newest + 1], newest[#newest + 2] = names[n], version -- @rule version-written
      forgotten[#forgotten + 1] = 't' .. id
    end
  end
  redis.call('HSET', marks, unpack(newest))
  if #forgotten > 0 then redis.call('HDEL', marks, unpack(forgotten)) end -- @rule touches-forgotten
end
return answer({ 'OK', lived })
