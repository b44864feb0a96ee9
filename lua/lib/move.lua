-- lib/move.lua: what is on its way between two partitions.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, rules hash, standings hash, ticks zset,
--         names zset
--
-- The hash `move` has these fields:
--   last     the name of the last batch that was taken out of here: microseconds, each later than those before
--   note     the same while that batch is on its way; and then of each of its timers 't' and the id, of each of its
--            recurrences 'c' and the id, of each of its dead letters 'd' and the entry's id, with what there is to know of it,
--            packed
--   arrived  the name of the last batch that came here
--   as       what became of it: 'PUT', or 'VOID' if it went back
--   rate     how many timers a second may be moved, in the first partition's hash, if that is bounded
-- A batch travels as its name, and then field and value of each of its timers, recurrences or letters.
--
-- The journals of both partitions say what has gone from one to the other. Their entries name the hand-over: the epoch of
-- the move, from which partition to which, and the batch's name, as in '2:1>3:1767225600000000'. No two batches have all
-- of that, and of one partition the later one has the higher epoch, or the later name.

local LEFT, ARRIVED, RETURNED = 26, 27, 28 -- kinds of lib/journal.lua
local OF_BATCH = '^[tcd]' -- @rule no-other-field-travels

local function hand_over(name)
  local epoch, count, towards = string.match(here.text, '^(%d+) (%d+) (%d+)$')
  local less = math.min(tonumber(count), tonumber(towards))
  local from, to = here.number % less, here.number % less + less
  if tonumber(towards) == less then
    from, to = to, from
  end
  return string.format('%s:%d>%d:%s', epoch, from, to, name)
end

-- Whose letter it is, by its fields and values.
local function id_of(letter)
  for i = 1, #letter, 2 do
    if letter[i] == 'timer_id' then return letter[i + 1] end
  end
  return ''
end

-- The batch that is on its way from here; {} if none is.
local function batch()
  local name = redis.call('HGET', move, 'note')
  if not name then return {} end
  local all, found = redis.call('HGETALL', move), { name }
  for i = 1, #all, 2 do
    if string.find(all[i], OF_BATCH) then
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
    if string.find(field, OF_BATCH) then fields[#fields + 1] = field end
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

-- Insert a batch of timers, of recurrences, or of dead letters, which stand in ARGV from a place on; answers the ids of the letters'
-- entries. The journal calls what happens to each `as`. The letters come before the record, which tells what they are
-- called here.
local function insert(from, batch_name, as)
  local scores, stored, records, entries = {}, {}, {}, {}
  local has_letters = #ARGV >= from and string.sub(ARGV[from], 1, 1) == 'd'
  if JOURNAL and has_letters then -- @rule arrival-asked-before-letters
    may_add()
    may_append()
  end
  for i = from, #ARGV, 2 do
    local kind, name, what = string.sub(ARGV[i], 1, 1), string.sub(ARGV[i], 2), cmsgpack.unpack(ARGV[i + 1])
    if kind == 'd' then
      local entry = redis.call('XADD', dead, '*', unpack(what))
      entries[#entries + 1] = entry
      if JOURNAL then note(as, id_of(what), dead_id_is(entry, name)) end
    elseif kind == 'c' then
      if redis.call('HEXISTS', rules, name) == 0 then -- @rule recurrences-that-stand-stay
        -- One that somebody has taken a part of is looked at, so that a relay tells of it; the move goes on.
        redis.call('ZADD', ticks, what[1] or '0', name) -- @rule recurrences-move
        redis.call('ZADD', names, 0, name)
        redis.call('HSET', rules, name, what[2])
        if what[3] then redis.call('HSET', standings, name, what[3]) end -- @rule parts-may-be-missing
      end
    elseif not redis.call('ZSCORE', timeline, name) then -- @rule what-stands-stays
      if JOURNAL then note(as, name, '') end
      scores[#scores + 1], scores[#scores + 2] = what[1], name
      if what[2] ~= '' then
        records[#records + 1], records[#records + 2] = name, what[2] -- @rule leases-move-too
      end
      if what[3] then
        stored[#stored + 1], stored[#stored + 2] = name, what[3]
      end
    end
  end
  if JOURNAL then append(now_us, nil, nil, hand_over(batch_name)) end -- @rule arrival-noted
  if #scores > 0 then redis.call('ZADD', timeline, unpack(scores)) end
  if #stored > 0 then redis.call('HSET', payloads, unpack(stored)) end
  if #records > 0 then redis.call('HSET', leases, unpack(records)) end
  return entries
end
