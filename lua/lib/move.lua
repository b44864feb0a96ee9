-- lib/move.lua: what is on its way between two partitions.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream
--
-- The hash `move` has these fields:
--   last     the name of the last batch that was taken out of here: microseconds, each later than those before
--   note     the same while that batch is on its way; and then of each of its timers 't' and the id, of each of its dead
--            letters 'd' and the entry's id, with what there is to know of it, packed
--   arrived  the name of the last batch that came here
--   as       what became of it: 'PUT', or 'VOID' if it went back
--   rate     how many timers a second may be moved, in the first partition's hash, if that is bounded
-- A batch travels as its name, and then field and value of each of its timers or letters.

-- The batch that is on its way from here; {} if none is.
local function batch()
  local name = redis.call('HGET', move, 'note')
  if not name then return {} end
  local all, found = redis.call('HGETALL', move), { name }
  for i = 1, #all, 2 do
    if string.find(all[i], '^[td]') then
      found[#found + 1], found[#found + 2] = all[i], all[i + 1]
    end
  end
  return found
end

-- Forget a batch of this name, if it is the one that is on its way; answers whether it was.
local function forget(name)
  if redis.call('HGET', move, 'note') ~= name then return false end -- @rule other-batches-stay
  local fields = { 'note' }
  for _, field in ipairs(redis.call('HKEYS', move)) do
    if string.find(field, '^[td]') then fields[#fields + 1] = field end
  end
  redis.call('HDEL', move, unpack(fields))
  return true
end

-- What becomes of a batch here: 'PUT' or 'VOID' if it is the last one that came, 'OVER' if a later one has come since; nil
-- if it is new.
local function arrived_as(name)
  local last, as = unpack(redis.call('HMGET', move, 'arrived', 'as'))
  if last and tonumber(name) <= tonumber(last) then return name == last and as or 'OVER' end -- @rule batches-arrive-once
end

-- Insert timers and dead letters, which stand in ARGV from a place on; answers the ids of the letters' entries.
local function insert(from)
  local scores, stored, records, entries = {}, {}, {}, {}
  for i = from, #ARGV, 2 do
    local kind, name, what = string.sub(ARGV[i], 1, 1), string.sub(ARGV[i], 2), cmsgpack.unpack(ARGV[i + 1])
    if kind == 'd' then
      entries[#entries + 1] = redis.call('XADD', dead, '*', unpack(what))
    elseif not redis.call('ZSCORE', timeline, name) then -- @rule what-stands-stays
      scores[#scores + 1], scores[#scores + 2] = what[1], name
      if what[2] ~= '' then
        records[#records + 1], records[#records + 2] = name, what[2] -- @rule leases-move-too
      end
      if what[3] then
        stored[#stored + 1], stored[#stored + 2] = name, what[3]
      end
    end
  end
  if #scores > 0 then redis.call('ZADD', timeline, unpack(scores)) end
  if #stored > 0 then redis.call('HSET', payloads, unpack(stored)) end
  if #records > 0 then redis.call('HSET', leases, unpack(records)) end
  return entries
end
