-- reseal/copy.lua: add dead letters to the copy, each under its own id and with another content.
--
-- KEYS    dead stream, copy stream
-- Uses    reseal/letter_copy
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         run text                  who copies
-- Tail    of each letter the entry's id and the content that it is to have, in their order
-- Returns 'OK', or 'OTHER' if the copy is somebody else's
--         error WRONGKEYTYPE
-- Race    a letter that goes after it was read is not copied. One that goes behind this is found by reseal/swap.lua.
-- Race    a call that was sent again copies nothing twice: the ids of a stream only grow.

local bad = wrong_type()
if bad then return bad end

if not is_of_run(copy, run) then return answer('OTHER') end

local function is_behind(id, last)
  local ms, n = string.match(id, '^(%d+)-(%d+)$')
  local last_ms, last_n = string.match(last, '^(%d+)-(%d+)$')
  ms, n, last_ms, last_n = tonumber(ms), tonumber(n), tonumber(last_ms), tonumber(last_n)
  return ms > last_ms or (ms == last_ms and n > last_n)
end

local last = redis.call('XREVRANGE', copy, '+', '-', 'COUNT', 1)[1][1]
for i = tail, #ARGV, 2 do
  local id = ARGV[i]
  local entry = is_behind(id, last) and redis.call('XRANGE', dead, id, id)[1]
  if entry then
    local fields = entry[2]
    for n = 1, #fields, 2 do
      if fields[n] == 'envelope' then fields[n + 1] = ARGV[i + 1] end
    end
    redis.call('XADD', copy, id, unpack(fields))
    last = id
  end
end
return answer('OK')
