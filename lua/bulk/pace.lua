-- bulk/pace.lua: take turns, so that all bulk loads that name a rate keep to it together.
--
-- KEYS    pace string
--         microseconds since 1970 until which the time is given away
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         lasts us                  that the caller's batch takes at its rate
-- Returns how many microseconds to wait before it is written
-- Race    loads in many processes: each takes the time behind all that was given away before it. One that dies
--         leaves a gap and nothing else. A clock that steps back, or a load that is long gone, holds up nobody
--         for longer than LONGEST.

local LONGEST = 60000000

local till = tonumber(redis.call('GET', pace) or '') or 0
if till < now_us or till > now_us + LONGEST then till = now_us end -- @rule turns-from-now
local ends = till + lasts -- @rule turns-behind-others
-- @rule turn-kept
redis.call('SET', pace, string.format('%.0f', ends), 'PX', string.format('%.0f', math.ceil((ends - now_us) / 1000)))
return string.format('%.0f', till - now_us)
