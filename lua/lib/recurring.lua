-- lib/recurring.lua: what scripts share that are about recurrences.
--
-- KEYS    timeline zset, rules hash, standings hash, ticks zset
--   rules      recurrence -> what is to recur, as relay/store/codec/recurrence_text.py writes it
--   standings  recurrence -> where it stands: the timer_id of its last occurrence, '' before the first, a line break, and
--              what only relays read
--   ticks      recurrence -> microseconds since 1970 at which to look at it; 'inf' for never again

local TICKED, CHANGED = 29, 30 -- kinds of lib/journal.lua

-- Whether the last occurrence of a recurrence is still there, by where it stands.
local function last_stands(standing)
  local last = string.match(standing, '^[^\n]*')
  return last ~= '' and redis.call('ZSCORE', timeline, last) and '1' or ''
end

-- Say of a recurrence its id, its rule, where it stands, whether its last occurrence is there; '' if there is none. Answers
-- the bytes of its rule.
local function say_recurrence(reply, id)
  local rule, standing = redis.call('HGET', rules, id) or '', redis.call('HGET', standings, id) or ''
  local at = #reply
  reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = id, rule, standing, last_stands(standing)
  return #rule
end
