-- people/purge.lua: remove dead letters for good.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
-- Tail    the entries' ids
-- Returns how many were there
--         error WRONGKEYTYPE
-- Race    a death while the last letter goes: the stream is deleted only if it is empty in this step.

local bad = wrong_type()
if bad then return bad end

local names = { unpack(ARGV, tail) }
if JOURNAL then
  local seen = {}
  for _, name in ipairs(names) do
    local entry = not seen[name] and redis.call('XRANGE', dead, name, name)[1]
    if entry then note(PURGED, entry[2][1] == 'timer_id' and entry[2][2] or '', dead_id_is(name)) end
    seen[name] = true
  end
  append_always(now_us) -- @rule purge-noted
end
local removed = redis.call('XDEL', dead, unpack(names))
-- @rule purge-leaves-no-empty-stream
if removed > 0 and redis.call('XLEN', dead) == 0 then redis.call('DEL', dead) end
return answer(removed)
