-- people/redrive.lua: bring dead letters back to life, due now.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream
-- Uses    text, life
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         channel text              of wake hints
-- Tail    the entries' ids, each once
-- Returns for each entry two: 'OK' | 'GONE' (no such entry, or none of ours) | 'CONFLICT' (a timer of its id lives), timer_id;
--           or 'ELSEWHERE', group: it died in a group of a stream, and is for stream/redrive.lua
--         error WRONGKEYTYPE
-- Race    two people redrive one entry: the second finds it gone. Two deaths of one timer in one call: the
--         first one lives again, and is in the way of the second.
-- Full    the first write is a delete: what is kept moves from one key to others.

local bad = wrong_type()
if bad then return bad end

local before = head()
local gone, moved, kept, stored, reply, taken = {}, {}, {}, {}, {}, {}
for i, name in ipairs({ unpack(ARGV, tail) }) do
  local n = 2 * i - 1
  local entry = redis.call('XRANGE', dead, name, name)[1]
  local letter = by_name(entry and entry[2] or {})
  local id = letter.timer_id
  if not (id and letter.envelope and letter.occurrence and #letter.occurrence == 16) then
    reply[n], reply[n + 1] = 'GONE', ''
  elseif letter.group then
    reply[n], reply[n + 1] = 'ELSEWHERE', letter.group
  else
    reply[n + 1] = id
    if taken[id] or redis.call('ZSCORE', timeline, id) then -- @rule redrive-spares-living
      reply[n] = 'CONFLICT'
    else
      reply[n] = 'OK'
      taken[id] = true
      local r = redriven(now_us, letter.occurrence)
      gone[#gone + 1] = name
      if JOURNAL then
        note_taken(id, redis.call('HGET', leases, id))
        note(REDRIVEN, id, occurrence_is(r.occurrence) .. due_is(r.due) .. score_is(r.score) .. dead_id_is(name))
      end
      moved[#moved + 1], moved[#moved + 2] = number(r.score), id
      kept[#kept + 1], kept[#kept + 2] = id, pack(r)
      stored[#stored + 1], stored[#stored + 2] = id, letter.envelope
    end
  end
end
if #gone > 0 then
  if JOURNAL then append_always(now_us) end -- @rule redrive-noted
  redis.call('XDEL', dead, unpack(gone)) -- @rule redrive-begins-with-a-delete
  redis.call('ZADD', timeline, unpack(moved))
  redis.call('HSET', payloads, unpack(stored))
  redis.call('HSET', leases, unpack(kept)) -- @rule redrive-writes-record
  if redis.call('XLEN', dead) == 0 then redis.call('DEL', dead) end -- @rule redrive-leaves-no-empty-stream
  hint(channel, before, head()) -- @rule redrive-hints
end
return answer(reply)
