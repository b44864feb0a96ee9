-- reseal/subjects.lua: put the keys of subjects, sealed with another key, in the place of those that were read.
--
-- KEYS    subjects hash
-- Uses    reseal/exchange
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
-- Tail    of each subject its field, its key as it was read, and as it is to be
-- Returns how many are so now
--         error WRONGKEYTYPE
-- Race    somebody has a subject forgotten after its key was read: what stands is not what was read, and stays.

local bad = wrong_type()
if bad then return bad end

return answer(exchange(subjects))
