-- reseal/rules.lua: put recurrences with another sealed content in the place of those that were read.
--
-- KEYS    rules hash
-- Uses    reseal/exchange
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
-- Tail    of each recurrence its id, what is to recur as it was read, and as it is to be
-- Returns how many are so now
--         error WRONGKEYTYPE
-- Race    somebody changes or removes a recurrence after it was read: what stands is not what was read, and stays. A tick
--         compares where a recurrence stands, which is another key.

local bad = wrong_type()
if bad then return bad end

return answer(exchange(rules))
