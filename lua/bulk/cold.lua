-- bulk/cold.lua: say how many timers of a topic rest in a cold store, and what its sweep is taking from there.
--
-- KEYS    cold hash
--           'counts:' and a store    the plan up to which it is counted, a blank, what rests by when it is due
--           'takes:' and a store     the plan that takes, a blank, before which instant
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         word text                 'counts' | 'takes'
--         store text                its name
--         plan count                the number of the plan; a store's plans have ascending numbers
--         said text                 what stands behind the number
--         kept s                    for which all of it is kept
-- Returns { 'OK' } | { 'OLD' }       a later plan has said it already: nothing was done
--         { 'NONE' }                 nothing rests there that was ever counted, so nothing is taken from it
--         error WRONGKEYTYPE
-- Race    a sweep that was killed and is run again, or one that comes to itself while another is at work: each says all of
--         it again, and adds nothing to what stands there.
-- Race    a sweep loads what is counted as resting: before its first batch it says what it takes, and that stands until
--         somebody has counted behind this plan. So what is loaded is not counted here any more, wherever it was killed.

local bad = wrong_type()
if bad then return bad end

local field = word .. ':' .. store
if word == 'takes' and not redis.call('HGET', cold, 'counts:' .. store) then -- @rule only-what-was-counted-is-taken
  return answer({ 'NONE' })
end
local held = tonumber(string.match(redis.call('HGET', cold, field) or '', '^%d+'))
if held and held > plan then return answer({ 'OLD' }) end -- @rule later-plans-stand
redis.call('HSET', cold, field, string.format('%.0f', plan) .. ' ' .. said)
redis.call('EXPIRE', cold, kept) -- @rule cold-counts-end
return answer({ 'OK' })
