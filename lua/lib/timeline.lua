-- lib/timeline.lua: how timers are stored in a timeline. A script says what is to become of each timer, and then
-- `write` does it for all.
--
-- KEYS    timeline zset, payloads hash, leases hash

local moved, kept, rewritten = {}, {}, {} -- ids behind their scores; ids before their records, their envelopes
local ended, forgotten = {}, {} -- ids of timers that go; ids of which only the record goes, or those as well

local function keep(id, score, record)
  local n, m = #moved, #kept -- they differ: of a timer that is rescheduled nothing is kept
  moved[n + 1], moved[n + 2] = score, id -- @rule scores-kept-as-numbers
  kept[m + 1], kept[m + 2] = id, record -- @rule records-without-gaps
end

local function remove(id)
  ended[#ended + 1] = id
  forgotten[#forgotten + 1] = id -- @rule end-clears-record
end

-- Write what was decided. A delete comes first, so that a Redis at its maxmemory takes the rest; and the journal's entry
-- before that. `nonce` and `score` are those of a claim.
local function write(now_us, nonce, score)
  if JOURNAL then append_always(now_us, nonce, score) end -- @rule noted-before-it-is-written
  if #forgotten > 0 then
    redis.call('HDEL', leases, unpack(forgotten))
  elseif #kept > 0 then -- @rule writes-begin-with-a-delete
    redis.call('HDEL', leases, kept[1])
  end
  if #ended > 0 then
    redis.call('HDEL', payloads, unpack(ended)) -- @rule end-clears-payload
    redis.call('ZREM', timeline, unpack(ended))
    mark(ended) -- @rule end-marked
  end
  if #moved > 0 then redis.call('ZADD', timeline, unpack(moved)) end
  if #kept > 0 then redis.call('HSET', leases, unpack(kept)) end
  if #rewritten > 0 then redis.call('HSET', payloads, unpack(rewritten)) end
end
