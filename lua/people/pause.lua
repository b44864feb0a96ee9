-- people/pause.lua: let nothing more of a topic be claimed, until an instant.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, pause string
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         channel text              of wake hints
--         mode text                 'at' | 'in' | 'end': resume
--         value us                  since 1970 | from now | 0
-- Returns end of the pause in microseconds, '' after a resume, or if that is past: nothing was written
--         error WRONGKEYTYPE
-- Race    a claim at the same moment: it reads the key in its own script, so it comes wholly before or
--         wholly after. What is in flight goes on to its end.
-- Full    the first write is a delete, so that a Redis at its maxmemory can be paused.

local bad = wrong_type()
if bad then return bad end

local till = value + (mode == 'in' and now_us or 0) -- @rule pause-from-now
if mode == 'end' then -- @rule end-only-by-end
  if JOURNAL then may_append() end -- @rule append-asked-before-resume
  local ended = redis.call('DEL', pause)
  here.pause_is_told()
  if JOURNAL and ended > 0 then
    note(RESUMED, '', '')
    append(now_us)
  end
  -- @rule resume-wakes-if-timers
  if head() ~= '' then hint(channel, '', '0') end -- pollers look again at once
  return answer('')
end
-- @rule past-pause-refused
if till <= now_us then return answer('') end -- refused: a pause that stands goes on
till = math.min(till, LATEST * 1e6) -- @rule pause-before-9999
local text = string.format('%.0f', till)
if JOURNAL then
  note(PAUSED, '', score_is(till / 1e6))
  append_always(now_us) -- @rule pause-noted
end
redis.call('DEL', pause) -- @rule pause-begins-with-a-delete
redis.call('SET', pause, text, 'PXAT', string.format('%.0f', math.ceil(till / 1000)))
here.pause_is_told()
return answer(text)
