-- reseal/drop.lua: take letters out of the copy that are dead letters no more.
--
-- KEYS    dead stream, copy stream
-- Uses    reseal/letter_copy
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         run text                  who copies
-- Tail    ids of the copy's entries
-- Returns 'OK', or 'OTHER' if the copy is somebody else's
--         error WRONGKEYTYPE
-- Race    none: a letter that has gone never comes again under its id.

local bad = wrong_type()
if bad then return bad end

if not is_of_run(copy, run) then return answer('OTHER') end
for i = tail, #ARGV do
  if not redis.call('XRANGE', dead, ARGV[i], ARGV[i])[1] then redis.call('XDEL', copy, ARGV[i]) end
end
return answer('OK')
