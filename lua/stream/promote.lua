-- stream/promote.lua: move due timers to a topic's stream.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, pause string,
--         stream stream, retries zset, group hash, marks hash
-- Uses    text, life, letters, timeline, due_timers, dispatch/promotion, dispatch/stream_group
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         limit count               1 to 500
--         max_bytes bytes           of payloads to stop at (the first timer is moved whatever its size)
--         grace us                  for a timer without payload
--         nonce nonce               never used before
--         group_name text           of this relay's application: the group is there before the first timer is
--         limits limits             of the topic's policy
--         at_once count             payloads to read at a time at most
--         begins text               where that group begins if it isn't there: '$', behind all entries, or '0'
-- Returns what list/promote.lua does
--         error WRONGKEYTYPE
-- Race, Full    see lib/dispatch/promotion.lua

local bad = wrong_type()
if bad then return bad end

if redis.pcall('XPENDING', stream, group_name).err then -- also while the topic is paused
  redis.call('HDEL', group, NO_NONCE)
  -- see 0058
  redis.call('XGROUP', 'CREATE', stream, group_name, begins, 'MKSTREAM') -- @rule promoter-group-begins-where-told
end
local till = redis.call('GET', pause)
local promoted = 0
if now_us >= (tonumber(till or 0) or 0) then
  till = ''
  promoted = promote(now_us, anybody, to_stream)
end
return answer({ string.format('%.0f', now_us), head(), promoted, parked, orphans, deaths, till })
