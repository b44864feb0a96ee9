-- list/reclaim.lua: give back what dead workers have left in a processing list.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, pause string,
--         ready list, processing list, taken hash
-- Uses    text, letters, dispatch/list_entries
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         patience us               after which an entry counts as left
--         most count                entries to look at, the oldest first, 1 to 500; fewer if they are large
--         limits limits             of the topic's policy
--         at_once count             entries to read at a time at most
--         passed count              of the oldest to pass over
--         cursor text               where to go on looking for what is finished; '0': at the start
-- Returns { number given back, { timer_id, reason, and so on, of those that died }, how many of the oldest to pass over
--           to go on, '' at the list's end, where to go on looking for what is finished, bytes read }
--         error WRONGKEYTYPE
-- Race    a worker that finishes as its entry is given back: it removes its own from the processing list, or
--         finds it gone; the work is done twice then, and never not at all.
-- Race    relays that look at the same time: since when an entry is there stands in Redis, once for all.
-- Full    the first write is a delete.

local DAY, ROUND = 86400000000, 600000000 -- ROUND: a look at the whole list takes less
local BYTES = 16777216 -- after which no more entries are read

local bad = wrong_type()
if bad then return bad end

local entries, size = {}, 0 -- BRPOPLPUSH and BLMOVE … LEFT put the newest on the left
while #entries < most and size < BYTES do -- @rule bytes-bounded
  local at = passed + #entries
  local part = redis.call('LRANGE', processing, -at - math.min(at_once, most - #entries), -at - 1)
  if #part == 0 then break end
  for n = #part, 1, -1 do
    entries[#entries + 1], size = part[n], size + #part[n]
  end
end
local at_end = redis.call('LLEN', processing) <= passed + #entries
local seen, noted, gone, deaths, back = {}, {}, {}, {}, {}

-- What is known of one entry: head, occurrence_id, since when, how often it came back; nil if it is not ours.
local function known(entry)
  local at = string.find(entry, '\n', 1, true)
  local fine, head = pcall(cjson.decode, at and string.sub(entry, 1, at - 1) or '')
  -- @rule only-ours-taken
  if not fine or type(head) ~= 'table' or type(head.occurrence_id) ~= 'string' or type(head.timer_id) ~= 'string' then
    return nil
  end
  -- Others may write what looks like ours: of that only what has our form is read.
  local headers, given = {}, type(head.headers) == 'table' and head.headers or {}
  given['content-type'] = head.content_type ~= '' and head.content_type or nil
  for name, text in pairs(given) do
    -- @rule only-our-headers-taken
    if type(name) == 'string' and type(text) == 'string' and #name < 65536 and #text < 65536 then
      headers[name] = text
    end
  end
  local due, occurrence = tonumber(head.due_time), string.match(head.occurrence_id, '/(%x+)$') or ''
  local since, times = cut(redis.call('HGET', taken, head.occurrence_id) or '')
  return {
    head = head,
    name = head.occurrence_id,
    since = tonumber(since),
    times = tonumber(times) or 0,
    payload = string.sub(entry, at + 1),
    headers = headers,
    due = due or 0,
    occurrence = #occurrence == 32 and unhex(occurrence) or NO_NONCE,
  }
end

-- @rule oldest-returned-last
for n = #entries, 1, -1 do -- so that the oldest goes back last, and is taken first
  local entry = entries[n]
  local it = known(entry)
  if it then
    seen[it.name] = true
    if not it.since or it.since < 0 or it.since > now_us then -- @rule later-clocks-do-not-count
      noted[#noted + 1], noted[#noted + 2] = it.name, string.format('%.0f;%d', now_us, it.times)
    elseif now_us - it.since >= patience then -- @rule patience-kept
      gone[#gone + 1] = entry
      it.times = it.times + 1 -- @rule returns-counted
      -- A list limits returns alone, so `fate` of lib/life.lua is not asked: it limits claims and age, too.
      if it.times >= limits.attempts then
        local r = fresh(it.due, 0)
        r.attempts, r.claims, r.occurrence = it.times, it.times, it.occurrence
        local envelope = sealed(it.payload, it.headers)
        local text = 'its workers did not finish it'
        letters[#letters + 1] = { it.head.timer_id, r, envelope, 'attempts', text, NO_NONCE, limits.keep }
        deaths[#deaths + 1], deaths[#deaths + 2] = it.head.timer_id, 'attempts'
        seen[it.name] = nil
      else
        -- @rule returns-start-anew
        noted[#noted + 1], noted[#noted + 2] = it.name, string.format('-%.0f;%d', now_us, it.times)
        back[#back + 1] = entry
      end
    end
  end
end

redis.call('LREM', processing, 1, NO_NONCE)
if #gone > 0 then -- what can't be removed and noted must be neither pushed nor buried: it would be again and again
  redis.call('HDEL', taken, NO_NONCE)
  redis.call('HSET', taken, NO_NONCE, '') -- @rule note-asked-before-return
  redis.call('HDEL', taken, NO_NONCE)
  if #back > 0 then may_push('RPUSH') end -- @rule push-asked-before-return
end
bury(now_us)
if #noted > 0 then redis.call('HSET', taken, unpack(noted)) end
-- @rule returned-as-next
if #back > 0 then redis.call('RPUSH', ready, unpack(back)) end -- the next to be taken
for _, entry in ipairs(gone) do
  redis.call('LREM', processing, -1, entry)
end

-- Forget what is finished: it was there and is no more, or would have been given back by now. What went back is
-- remembered for a day.
local scan = '0'
if passed == 0 and redis.call('HLEN', taken) > 0 then
  local patient, finished, page = at_end and 0 or patience + ROUND, {}, nil -- @rule finished-waits-for-whole-look
  scan, page = unpack(redis.call('HSCAN', taken, cursor, 'COUNT', 2 * most))
  for i = 1, #page, 2 do
    local since = tonumber((cut(page[i + 1]))) or 0
    if since < 0 and now_us + since > DAY or since >= 0 and not seen[page[i]] and now_us - since >= patient then
      finished[#finished + 1] = page[i]
    end
  end
  if #finished > 0 then redis.call('HDEL', taken, unpack(finished)) end -- @rule finished-forgotten
end
return answer({ #back, deaths, at_end and '' or passed + #entries - #gone, scan, size }) -- @rule look-goes-on-behind
