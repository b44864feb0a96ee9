-- lib/dispatch/stream_entry.lua: an entry of a stream: what it says, what one group of consumers knows of it, and who has it.
--
-- KEYS    stream stream, retries zset, group hash
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

-- Add to `timers` what a claim says of one that was delivered for the `deliveries`-th time: entry, deliveries, timer_id,
-- envelope, due, occurrence_id, attempts, claims, suspect '1' | '', approximate '1' | ''.
local function told(timers, entry, deliveries, it, k)
  for _, part in ipairs({
    entry,
    deliveries,
    it.timer_id,
    it.envelope,
    number(it.due),
    it.occurrence_id,
    k.attempts,
    deliveries - k.unsent,
    k.suspect == 1 and '1' or '',
    it.approximate and '1' or '',
  }) do
    timers[#timers + 1] = part
  end
end
