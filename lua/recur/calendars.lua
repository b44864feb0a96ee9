-- recur/calendars.lua: read all calendars, unless the caller has them.
--
-- KEYS    calendars hash
-- Writes  nothing
-- ARGV    known text                the revision that the caller has read; '' for none
-- Returns { the revision, '0' if there never was a calendar; then, if it is another one, name and dates of each }
--         error WRONGKEYTYPE
-- Race    a calendar that is changed meanwhile: what is answered is what there was at one moment, with its revision.

local bad = wrong_type()
if bad then return bad end

local revision = redis.call('HGET', calendars, '#revision') or '0'
local reply = { revision }
if revision == known then return reply end -- @rule known-calendars-stay-away
local cursor = '0'
repeat -- they are few: see MOST_CALENDARS
  local page = redis.call('HSCAN', calendars, cursor, 'COUNT', 1000)
  cursor = page[1]
  for i = 1, #page[2], 2 do
    if page[2][i] ~= '#revision' then
      reply[#reply + 1], reply[#reply + 2] = page[2][i], page[2][i + 1]
    end
  end
until cursor == '0'
return reply
