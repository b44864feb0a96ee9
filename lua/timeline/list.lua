-- timeline/list.lua: read one page of a topic in the order of scores.
--
-- KEYS    timeline zset, payloads hash, leases hash
-- Writes  nothing
-- ARGV    limit count               entries to look at, 1 to 500
--         after_score text          of the last entry of the page before; '' for the first page
--         after_id text             of the same entry; '' for the first page
--         max_bytes bytes           if it is there: with envelopes of at most this many bytes together, or one; a page ends
--                                   sooner then
-- Returns { '1' if there is more, else '', then for each entry: timer_id, score, record, and its envelope or false
--         if asked for }, where the record is as `understand` sees it
--         error WRONGKEYTYPE
-- Race    entries that move between two pages: a page starts behind the place that the last entry
--         had, so what stays in place is seen once and never skipped, however many share a score.

local bad = wrong_type()
if bad then return bad end

-- By bytes, as the timeline orders equal scores; Lua's own comparison follows the server's locale.
local function not_after(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a <= #b -- @rule pages-by-bytes
end

local first = 0
if after_score ~= '' then
  -- Rank of the first entry behind (score, timer_id), by halving the run of equal scores.
  first = redis.call('ZCOUNT', timeline, '-inf', '(' .. after_score)
  local last = redis.call('ZCOUNT', timeline, '-inf', after_score)
  while first < last do
    local middle = math.floor((first + last) / 2)
    local id = redis.call('ZRANGE', timeline, middle, middle)[1]
    if not_after(id, after_id) then -- @rule pages-by-score-and-id
      first = middle + 1
    else
      last = middle
    end
  end
end

local found = redis.call('ZRANGE', timeline, first, first + limit, 'WITHSCORES') -- one more than asked for
local more = #found > 2 * limit
local ids = {}
for i = 1, math.min(#found, 2 * limit), 2 do
  ids[#ids + 1] = found[i]
end
local envelopes
if max_bytes and #ids > 0 then
  local size, last = 0, #ids
  for n, id in ipairs(ids) do
    size = size + redis.call('HSTRLEN', payloads, id)
    if size > max_bytes and n > 1 then -- @rule pages-bounded-by-bytes
      last, more = n - 1, true
      break
    end
  end
  ids = { unpack(ids, 1, last) }
  envelopes = redis.call('HMGET', payloads, unpack(ids))
end
local reply = { more and '1' or '' }
if #ids > 0 then
  local records = redis.call('HMGET', leases, unpack(ids))
  for n, id in ipairs(ids) do
    local score = found[2 * n]
    reply[#reply + 1] = id
    reply[#reply + 1] = score
    reply[#reply + 1] = pack(understand(tonumber(score), records[n]))
    if envelopes then reply[#reply + 1] = envelopes[n] end
  end
end
return reply
