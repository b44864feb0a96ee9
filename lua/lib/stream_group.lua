-- lib/stream_group.lua: what the scripts share that serve one group of a stream's consumers.
--
-- KEYS    dead stream, stream stream, retries zset, group hash
--           stream   an entry a timer; docs/how-to/dispatch.md has the fields
--           retries  of this group: entry -> when it is tried again, unix seconds
--           group    of this group: entry -> what is known of it: 'attempts;received;suspect;unsent;deliveries', where
--                    there is something to say of an entry that the group has not acknowledged, the last one of its
--                    latest try, if it waits for another; or 'D' and a MessagePack array { timer_id, due,
--                    occurrence_id, envelope } of a timer that was acknowledged and comes again, for this group
--                    alone: it was rescheduled, or redriven. Its score is in the retries
-- ARGV    group_name text
--
-- The truth about a delivery is the group's own list of pending entries: a token { entry, how often it was
-- delivered } is valid if and only if the entry is pending with our consumer, was delivered so often, and does not
-- wait for another try. Every delivery counts one more, and nothing else does.

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

-- An entry's fields by name. An entry that others have put into the stream gives its own name and time.
local function read_entry(entry)
  local it = by_name(entry[2])
  it.timer_id = it.timer_id or entry[1]
  it.occurrence_id = it.occurrence_id or entry[1]
  it.approximate = not tonumber(it.due_time)
  it.due = tonumber(it.due_time) or tonumber((string.match(entry[1], '^%d+'))) / 1000
  it.expires = tonumber(it.expires) or 0
  it.envelope = it.__data__ or ''
  return it
end

-- What is known of an entry: attempts, received, suspect, unsent, deliveries.
local function known(raw)
  local k = { attempts = 0, received = 0, suspect = 0, unsent = 0, deliveries = 0 }
  if raw and string.sub(raw, 1, 1) ~= 'D' then
    local a, r, s, u, d = string.match(raw, '^(%d+);(%d);(%d);(%d+);?(%d*)$')
    if a then
      k = {
        attempts = tonumber(a),
        received = tonumber(r),
        suspect = tonumber(s),
        unsent = tonumber(u),
        deliveries = tonumber(d) or 0,
      }
    end
  end
  return k
end

local function known_as(k)
  return string.format('%d;%d;%d;%d;%d', k.attempts, k.received, k.suspect, k.unsent, k.deliveries)
end

-- A pending entry's consumer, its idle milliseconds, and how often it was delivered; nil if it is not pending.
local function pending(entry)
  local found = redis.call('XPENDING', stream, group_name, entry, entry, 1)[1]
  if found then return found[2], found[3], found[4] end
end

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
