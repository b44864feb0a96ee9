-- list/promote.lua: move due timers to a ready list.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, pause string,
--         ready list, processing list, taken hash, marks hash
-- Uses    text, life, letters, timeline, due_timers, dispatch/promotion, dispatch/list_entries
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         limit count               1 to 500
--         max_bytes bytes           of payloads to stop at (the first timer is moved whatever its size)
--         grace us                  for a timer without payload
--         nonce nonce               never used before
--         limits limits             of the topic's policy
--         at_once count             payloads to read at a time at most
-- Returns { now in microseconds, score of the next timer or '', number promoted, number parked,
--           { ids removed as orphans }, { timer_id, reason, and so on, of those that died },
--           end of the pause in microseconds, if there is one, else '',
--           due times of those promoted that nobody has had before, 8 bytes each }
--         error WRONGKEYTYPE
-- Race, Full    see lib/dispatch/promotion.lua

local bad = wrong_type()
if bad then return bad end

local dues = {}

local function push(batch)
  local entries = {}
  for n, each in ipairs(batch) do
    entries[n] = entry_of(unpack(each)) -- @rule earliest-first
    if each[2].claims == 0 then dues[#dues + 1] = each[2].due end -- @rule lateness-of-first-deliveries
  end
  -- What can't be recorded must not be pushed: see lib/dispatch/promotion.lua.
  if JOURNAL then may_add() end -- @rule record-asked-before-push
  redis.call('LPUSH', ready, unpack(entries))
end

local till = redis.call('GET', pause)
local promoted = 0
if now_us >= (tonumber(till or 0) or 0) then -- @rule list-pause-holds
  till = ''
  promoted = promote(now_us, is_utf8, push, function() may_push('LPUSH') end)
end
local late = #dues > 0 and struct.pack('<' .. string.rep('d', #dues), unpack(dues)) or ''
return answer({ string.format('%.0f', now_us), head(), promoted, parked, orphans, deaths, till, late })
