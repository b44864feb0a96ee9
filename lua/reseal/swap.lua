-- reseal/swap.lua: put the copy of a partition's dead letters in their place, if it has all of them and no others.
--
-- KEYS    dead stream, copy stream
-- Uses    reseal/letter_copy
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         run text                  who copies
-- Returns 'OK'
--         'OTHER'                   the copy is somebody else's
--         'BEHIND'                  letters have come since the last one that was copied
--         'DIFFERS'                 letters have gone that were copied: see reseal/drop.lua
--         error WRONGKEYTYPE
-- Race    a death, a redrive, a purge or a trim beside the copying. The copy was made of the letters in their order, under
--         its one run, so up to its last entry it has each letter that is there; and as many as there are means the same.
-- Race    a topic whose dead letters are trimmed at each death: the oldest of the copy go here, TRIMMED of them at most. To
--         compare all, as reseal/drop.lua does, would take long enough for the next to go.
-- Race    a letter that was the newest has gone, and the clock of Redis has stepped back: the next death must not get its id,
--         which stands in journals. So the copy takes over the last id that was given.
-- Full    the first write is a delete.

local bad = wrong_type()
if bad then return bad end

local TRIMMED = 1000

if not is_of_run(copy, run) then return answer('OTHER') end
local last = redis.call('XREVRANGE', dead, '+', '-', 'COUNT', 1)[1]
if not last then
  redis.call('DEL', copy)
  return answer('OK')
end
local first = redis.call('XRANGE', dead, '-', '+', 'COUNT', 1)[1][1]
for _ = 1, TRIMMED do
  local gone = redis.call('XRANGE', copy, '(0-1', '(' .. first, 'COUNT', 1)[1]
  if not gone then break end
  redis.call('XDEL', copy, gone[1])
end
local copied = redis.call('XREVRANGE', copy, '+', '-', 'COUNT', 1)[1][1]
if redis.call('XLEN', copy) - 1 ~= redis.call('XLEN', dead) then
  return answer(#redis.call('XRANGE', dead, '(' .. copied, '+', 'COUNT', 1) > 0 and 'BEHIND' or 'DIFFERS')
end
if copied ~= last[1] then return answer('BEHIND') end
redis.call('XDEL', copy, '0-1')
local about = redis.call('XINFO', 'STREAM', dead)
for n = 1, #about, 2 do
  if about[n] == 'last-generated-id' then redis.call('XSETID', copy, about[n + 1]) end
end
redis.call('RENAME', copy, dead)
return answer('OK')
