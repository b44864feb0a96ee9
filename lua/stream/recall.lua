-- stream/recall.lua: let idle times of a group's pending entries begin, when the server's clock has stepped back.
--
-- KEYS    stream stream
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         group_name text
--         first text                where to begin, as XPENDING takes it; '-' at first
--         most count                entries to look at
-- Returns where to go on, '' at the end
--         error WRONGKEYTYPE
-- Race    an entry's idle time is 0 until the clock is where it was when the entry was delivered, however dead its
--         consumer is. It begins now, with the same consumer and the same count of deliveries: so a consumer that lives
--         notices nothing, and one that is dead loses the entry after a lease.
-- Full    XCLAIM is permitted to a Redis at its maxmemory.

local bad = wrong_type()
if bad then return bad end

local found = redis.pcall('XPENDING', stream, group_name, first, '+', most)
if found.err then return '' end -- no such group
local of = {}
for _, each in ipairs(found) do
  local entry, owner, idle = unpack(each)
  if idle == 0 then -- @rule idle-times-that-run-stay
    of[owner] = of[owner] or {}
    table.insert(of[owner], entry)
  end
end
for owner, ids in pairs(of) do
  table.insert(ids, 'JUSTID') -- @rule recall-counts-no-delivery
  redis.call('XCLAIM', stream, group_name, owner, 0, unpack(ids)) -- @rule idle-times-begin
end
return #found == most and '(' .. found[#found][1] or ''
