-- reseal/contents.lua: put contents of timers in the place of those that were read.
--
-- KEYS    payloads hash
-- Uses    reseal/exchange
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
-- Tail    of each timer its id, the content that was read, and the one that it is to have
-- Returns how many have it now
--         error WRONGKEYTYPE
-- Race    a timer that ends, or gets another content, after it was read: what stands is not what was read, and stays.
--         Leases and due times are other keys, so a delivery that is under way never notices.

local bad = wrong_type()
if bad then return bad end

return answer(exchange(payloads))
