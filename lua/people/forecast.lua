-- people/forecast.lua: how many timers can be claimed from an instant in each of the coming intervals on, and which
-- recurrences come within them.
--
-- KEYS    timeline zset, leases hash, rules hash, standings hash, ticks zset
-- Uses    recurring
-- Writes  nothing
-- ARGV    since text                microseconds at which the first interval begins; '' for now
--         horizon us                from there to the end of the last interval
--         resolution us             of each interval; the last one ends with the horizon
--         most_records count        of leases that are looked at; leases are not told apart where there are more
--         most_recurrences count    that are read, the first ones to come
--         max_bytes bytes           of rules after which no more are read
-- Returns { since in microseconds; timers that can be claimed then; of those that can't, the leased ones, '' if they are not
--           told apart; timers from the horizon's end on; when the first recurrence comes that was not read, '' if all were;
--           number of intervals; timers of each; then of each recurrence what `say_recurrence` says }
--         error WRONGKEYTYPE
-- Race    a recurrence makes its occurrence: one script sees both, so what the rule has made already is in the timeline, and
--         the recurrence stands behind it.

local bad = wrong_type()
if bad then return bad end

local from = tonumber(since) or time_us()
local till = from + horizon
local intervals = math.ceil(horizon / resolution)

local function at(us) return number(us / 1e6) end

local counts = {}
for n = 1, intervals do
  local first, after = from + (n - 1) * resolution, math.min(from + n * resolution, till)
  local left = n == 1 and '(' or '' -- @rule due-at-the-start-is-overdue
  counts[n] = redis.call('ZCOUNT', timeline, left .. at(first), '(' .. at(after)) -- @rule intervals-are-half-open
end
local overdue = redis.call('ZCOUNT', timeline, '-inf', at(from))
local later = redis.call('ZCOUNT', timeline, at(till), '+inf')

-- What is leased stands in the timeline with the end of its lease, which is not its due time.
local leased = ''
if redis.call('HLEN', leases) <= most_records then -- @rule few-records-are-looked-at
  leased = 0
  local cursor, seen = '0', {} -- HSCAN may say a record twice
  repeat
    local page = redis.call('HSCAN', leases, cursor, 'COUNT', 1000)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      local id, raw = page[2][i], page[2][i + 1]
      local score = not seen[id] and string.byte(raw, 2) ~= PENDING and tonumber(redis.call('ZSCORE', timeline, id))
      seen[id] = true
      if score and score > from / 1e6 and understand(score, raw).state == LEASED then -- @rule leases-apart
        local us = math.floor(score * 1e6)
        leased = leased + 1
        if us < till then
          local n = math.floor((us - from) / resolution) + 1
          counts[n] = counts[n] - 1
        else
          later = later - 1
        end
      end
    end
  until cursor == '0'
end

local reply = { string.format('%.0f', from), overdue, leased, later, '', intervals }
for n = 1, intervals do
  reply[#reply + 1] = counts[n]
end
local bytes, limit = 0, most_recurrences + 1 -- one more than are read
local found = redis.call('ZRANGE', ticks, '-inf', '(' .. number(till), 'BYSCORE', 'LIMIT', 0, limit, 'WITHSCORES')
for i = 1, #found, 2 do
  if i > 2 * most_recurrences or bytes > max_bytes then
    reply[5] = string.format('%.0f', tonumber(found[i + 1]))
    break
  end
  bytes = bytes + say_recurrence(reply, found[i])
end
return reply
