-- reseal/begin.lua: begin a copy of a partition's dead letters, in the place of any that was left.
--
-- KEYS    copy stream
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         run text                  who copies; '' for nobody: there is to be no copy
-- Returns 'OK'
--         error WRONGKEYTYPE
-- Race    two who copy: the second takes the copy away from the first, whose next call finds another's name.

local bad = wrong_type()
if bad then return bad end

redis.call('DEL', copy)
if run ~= '' then redis.call('XADD', copy, '0-1', 'run', run) end
return answer('OK')
