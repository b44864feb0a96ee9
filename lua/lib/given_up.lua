-- lib/given_up.lua: refuse a call that comes too late. It is put behind the prelude, and the journal, of each script
-- that changes something.
--
-- ARGV    until us
-- Race    the bytes of a call are held up on their way. Its caller gives it up, and asks for something else. Then the
--         call arrives, and would undo what has been answered since. So it brings along the instant, by this server's
--         clock, until which its caller waits.
-- Race    the clock steps back while a call is on its way: that instant lies hours ahead then. No relay lets a call act for
--         longer than LONGEST_CALL, so that one with more time is of the clock before, and refused, too. See 0088.

local LONGEST_CALL = 300000000 -- much more than redis.write_ttl, which is 60 s at most

now_us = time_us()
local function is_over(us) return now_us > us or us > now_us + LONGEST_CALL end -- @rule calls-of-a-later-clock-refused
if is_over(until_us) then return fail('GIVENUP', string.format('%.0f', now_us)) end -- @rule late-call-refused
