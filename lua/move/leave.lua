-- move/leave.lua: take timers, recurrences, or dead letters, out of a partition as one batch, which is noted until it has arrived.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, rules hash, standings hash, ticks zset,
--         names zset
-- Uses    move
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         kind text                 't' for timers, 'c' for recurrences, 'd' for dead letters
--         max_bytes bytes           of contents after which the batch ends
-- Tail    timer_ids, ids of recurrences, or ids of dead letters' entries, which the move takes away from here
-- Returns the batch that is on its way now, as lib/move.lua has it: one that was already, or these; {} if none of them
--         is here
--         error WRONGKEYTYPE
-- Race    two who move the same: the second finds the batch of the first, and helps with that.
-- Full    the first write is a delete: what is kept moves from one key to others.

local bad = wrong_type()
if bad then return bad end

local on_way = batch()
if #on_way > 0 then return answer(on_way) end -- @rule one-batch-at-a-time

local taken, fields, bytes = {}, {}, 0
for _, name in ipairs({ unpack(ARGV, tail) }) do
  if bytes > max_bytes then break end -- @rule batches-bounded-by-bytes
  local what, envelope
  if kind == 'd' then
    local entry = redis.call('XRANGE', dead, name, name)[1]
    what = entry and entry[2]
    for _, value in ipairs(what or {}) do
      bytes = bytes + #value
    end
    if JOURNAL and what then note(LEFT, id_of(what), dead_id_is(name)) end
  elseif kind == 'c' then
    local rule = redis.call('HGET', rules, name)
    if rule then
      what = { redis.call('ZSCORE', ticks, name), rule, redis.call('HGET', standings, name) }
      bytes = bytes + #rule
    end
  else
    local score = redis.call('ZSCORE', timeline, name)
    if score then
      envelope = redis.call('HGET', payloads, name)
      what = { score, redis.call('HGET', leases, name) or '', envelope or nil }
      bytes = bytes + (envelope and #envelope or 0)
      if JOURNAL then note(LEFT, name, '') end
    end
  end
  if what then
    taken[#taken + 1] = name
    fields[#fields + 1], fields[#fields + 2] = kind .. name, cmsgpack.pack(what)
  end
end
if #taken == 0 then return answer({}) end

local last = tonumber(redis.call('HGET', move, 'last') or 0)
local name = string.format('%.0f', math.max(last + 1, now_us)) -- @rule batches-have-later-names
if JOURNAL then append_always(now_us, nil, nil, hand_over(name)) end -- @rule leaving-noted
if kind == 'd' then
  redis.call('XDEL', dead, unpack(taken))
  if redis.call('XLEN', dead) == 0 then redis.call('DEL', dead) end
elseif kind == 'c' then
  redis.call('HDEL', rules, unpack(taken))
  redis.call('HDEL', standings, unpack(taken))
  redis.call('ZREM', ticks, unpack(taken))
  redis.call('ZREM', names, unpack(taken))
else
  redis.call('HDEL', leases, unpack(taken))
  redis.call('HDEL', payloads, unpack(taken))
  redis.call('ZREM', timeline, unpack(taken))
end
redis.call('HSET', move, 'last', name, 'note', name, unpack(fields)) -- @rule batches-are-noted
return answer({ name, unpack(fields) })
