-- recur/calendar.lua: keep a calendar, or remove it.
--
-- KEYS    calendars hash
--         name -> its dates, ascending, a space between two; '#revision' -> a number that grows with each change
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         name text                 of the calendar
--         keeps flag                whether to keep it; otherwise it is removed
--         dates text                as they are kept
--         most count                calendars that there may be
-- Returns 'CREATED', 'REPLACED', or 'UNCHANGED' if it has these dates already
--         'FULL'                    there are as many as may be; nothing was written
--         'REMOVED'; 'GONE' if there was none to remove
--         error WRONGKEYTYPE; error OOM from Redis, with nothing written, since HSET is the first write, unless it is removed
-- Race    relays look whether the revision is the one that they have read. A server that was put back to an older state must
--         not come to that of another change: so it is the time of the change, or the last one and 1 if the clock has
--         stepped back.

local bad = wrong_type()
if bad then return bad end

local stood = redis.call('HGET', calendars, name)
local last = tonumber(redis.call('HGET', calendars, '#revision') or '') or 0
if not (last < 2 ^ 53) then last = 0 end -- somebody's number: 1 more is the same there -- @rule revisions-can-grow
local revision = string.format('%.0f', math.max(last + 1, now_us)) -- @rule revisions-grow
if keeps then
  if stood == dates then return 'UNCHANGED' end -- @rule same-calendar-no-change
  if not stood and redis.call('HLEN', calendars) - 1 >= most then return 'FULL' end -- @rule few-calendars
  redis.call('HSET', calendars, name, dates, '#revision', revision)
  return stood and 'REPLACED' or 'CREATED'
end
if not stood then return 'GONE' end
redis.call('HDEL', calendars, name)
redis.call('HSET', calendars, '#revision', revision) -- @rule removal-raises-revision
return 'REMOVED'
