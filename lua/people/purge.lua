-- people/purge.lua: remove dead letters for good.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream
-- ARGV    the entries' ids
-- Returns how many were there
--         error WRONGKEYTYPE
-- Race    a death while the last letter goes: the stream is deleted only if it is empty in this step.

local bad = wrong_type()
if bad then return bad end

if JOURNAL then
  local seen = {}
  for _, name in ipairs(ARGV) do
    local entry = not seen[name] and redis.call('XRANGE', KEYS[4], name, name)[1]
    if entry then note(PURGED, entry[2][1] == 'timer_id' and entry[2][2] or '', dead_id_is(name)) end
    seen[name] = true
  end
  append_always(time_us()) -- @rule purge-noted
end
local removed = redis.call('XDEL', KEYS[4], unpack(ARGV))
-- @rule purge-leaves-no-empty-stream
if removed > 0 and redis.call('XLEN', KEYS[4]) == 0 then redis.call('DEL', KEYS[4]) end
return answer(removed)
