-- subjects/forget.lua: remove a subject's key for good, and remember that.
--
-- KEYS    subjects hash
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         field text                of the subject
-- Returns since when it is forgotten, as it stands in the hash
--         ''                        no such subject: nothing was written
--         error WRONGKEYTYPE
-- Race    a relay that gives the subject a key at this moment: see subjects/keep.lua. Before this, it has a key, which
--         goes; afterwards it gets none.
-- Race    `relay seal rotate` seals the key again: it exchanges what it has read, and that is not there any more.
-- Full    the first write is a delete.

local bad = wrong_type()
if bad then return bad end

local found = redis.call('HGET', subjects, field)
if not found then return answer('') end
if string.sub(found, 1, 1) == '!' then return answer(found) end
local stone = string.format('!%.0f', now_us)
redis.call('HDEL', subjects, field)
redis.call('HSET', subjects, field, stone)
return answer(stone)
