-- layout/begin.lua: say which partitions a topic has, and give it some if nothing is kept of it yet.
--
-- KEYS    timeline zset, payloads hash, dead stream, pause string, layout string, marks hash
--           layout   'epoch partitions', under the name that the lease records of a topic of one partition have
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         partitions count          that a new topic is to have
-- Returns the topic's layout, '' if it has none: then it has one partition
-- Race    two relays that are told different numbers: the first to come decides, the other reads what it decided. A
--         relay that takes the topic for one of one partition: its first timer makes the topic one; behind this script
--         it finds a string where it wants a hash, and writes nothing.

local kind = redis.call('TYPE', layout).ok
if kind == 'string' then return answer(redis.call('GET', layout)) end -- @rule layout-stands
-- @rule only-an-empty-topic-begins
local kept = redis.call('EXISTS', timeline, payloads, dead, pause, layout, marks)
if JOURNAL then kept = kept + redis.call('EXISTS', JOURNAL) end -- @rule a-journal-is-kept-too
if kept > 0 or partitions < 2 then return answer('') end
local text = '1 ' .. partitions
redis.call('SET', layout, text)
return answer(text)
