-- lib/shared_call.lua: refuse single timers of a call that several callers share, each of which waits until another
-- instant.
--
-- ARGV    until us
--         each_until text
-- Race    a caller's timer travels with those of others, is held up on its way, and given up before theirs. See
--         lib/given_up.lua: what the caller has asked for since must stand, and the others still wait for an answer.

-- The instant after which each timer is refused, if that is not `until` for all. `each_until` has them as doubles of
-- eight bytes, little-endian; '' where all callers wait as long.
local ends
-- @rule late-timers-told
if each_until ~= '' then ends = { struct.unpack('<' .. string.rep('d', #each_until / 8), each_until) } end
