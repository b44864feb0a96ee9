-- layout/begin.lua: say which partitions a topic has, and give it some if nothing is kept of it yet.
--
-- KEYS    timeline zset, payloads hash, dead stream, pause string, layout string, marks hash
--           layout   'epoch partitions', under the name that the lease records of a topic of one partition have
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         partitions count          that a new topic is to have
--         known text                the layout that the caller goes by; '' if it knows none
-- Returns the topic's layout, '' if it has none: then it has one partition
-- Race    two relays that are told different numbers: the first to come decides, the other reads what it decided. A
--         relay that takes the topic for one of one partition: its first timer makes the topic one; behind this script
--         it finds a string where it wants a hash, and writes nothing.
--         Redis has lost the layout, by a restart or a failover, while relays go on by it: who starts then would take
--         the timers of the first partition for the whole topic, and those of the others would never be delivered.

local kind = redis.call('TYPE', layout).ok
if kind == 'string' then return answer(redis.call('GET', layout)) end -- @rule layout-stands
if kind == 'none' and known ~= '' then -- @rule a-lost-layout-comes-back
  redis.call('SET', layout, known)
  return answer(known)
end
local kept = kind ~= 'none'
-- By their types, which every relay may ask for: an ACL written before there were partitions has no EXISTS.
for _, key in ipairs({ timeline, payloads, dead, pause, marks }) do
  kept = kept or redis.call('TYPE', key).ok ~= 'none' -- @rule only-an-empty-topic-begins
end
if JOURNAL then kept = kept or redis.call('TYPE', JOURNAL).ok ~= 'none' end -- @rule a-journal-is-kept-too
if kept or partitions < 2 then return answer('') end
local text = string.format('1 %d', partitions)
redis.call('SET', layout, text)
return answer(text)
