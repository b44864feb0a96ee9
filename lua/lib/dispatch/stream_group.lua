-- lib/dispatch/stream_group.lua: how timers come to a stream, and how they end in one group of its consumers.
--
-- KEYS    dead stream, stream stream, retries zset
-- ARGV    group_name text

-- Write due timers to the stream.
local function to_stream(batch) -- see 0043
  for _, each in ipairs(batch) do
    local id, r, envelope, occurrence = unpack(each)
    local fields = { 'timer_id', id, 'occurrence_id', occurrence, 'due_time', number(r.due) }
    if r.expires > 0 then
      fields[7], fields[8] = 'expires', number(r.expires)
    end
    fields[#fields + 1], fields[#fields + 2] = '__data__', envelope
    redis.call('XADD', stream, '*', unpack(fields))
  end
end

local function anybody() return true end -- each group says by itself whom it can't be given

-- Keep dead letters of this group: each { what read_entry gives, known, reason, text, keep }. To be
-- called before anything of them is removed. A delete comes first, so that a Redis at its maxmemory takes the rest.
local function bury_here(died, now_us)
  if #died > 0 then redis.call('XDEL', dead, '0-0') end
  for _, each in ipairs(died) do
    local it, k, reason, text, kept_too = unpack(each)
    if kept_too then
      local occurrence = unhex(string.match(it.occurrence_id, '%x*$'))
      local r = { attempts = k.attempts, claims = k.claims, due = it.due }
      r.occurrence = #occurrence == 16 and occurrence or NO_NONCE
      keep_letter(it.timer_id, r, it.envelope, reason, text, now_us, 'group', group_name) -- @rule letter-names-group
    end
  end
end

-- When this group has something to do that is known: the timeline's first timer, or its own first retry.
local function next_for_us()
  local first, retry = head(), redis.call('ZRANGE', retries, 0, 0, 'WITHSCORES')[2] or ''
  if first == '' or (retry ~= '' and tonumber(retry) < tonumber(first)) then return retry end
  return first
end
