-- layout/tell_pause.lua: tell a partition that has come into use whether its topic is paused.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, pause string
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         till us                   the end of the pause that the first partition had under the same layout, 0 for none
-- Returns ''
--         error WRONGKEYTYPE
-- Race    somebody pauses or resumes meanwhile. That call reaches every partition, and what was read before it must not
--         undo it.

local bad = wrong_type()
if bad then return bad end

if here.pause_unknown then -- @rule newer-pauses-stay
  redis.call('DEL', pause)
  if till > now_us then
    redis.call('SET', pause, string.format('%.0f', till), 'PXAT', string.format('%.0f', math.ceil(till / 1000)))
  end
  here.pause_is_told()
end
return answer('')
