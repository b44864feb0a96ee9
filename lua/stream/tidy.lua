-- stream/tidy.lua: remove from a stream what every group has acknowledged, and consumers that are gone.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream, pause string,
--         stream stream
-- Uses    text
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         patience ms               after which a consumer that has nothing pending is gone
--         most count                entries that stay, whoever has not had them; 0: any number
--         step count                entries to remove at most, about. Where half as many were, there may be more
-- Returns { entries removed that all groups have acknowledged, entries removed by ARGV[2], consumers removed }
--         error WRONGKEYTYPE
-- Race    a consumer that takes something as it is removed: what is pending is asked in the same step, and Redis
--         makes a consumer again when it comes back.
-- Race    a group that is made at this moment: it comes before, and counts, or after, and begins with what stays.

local bad = wrong_type()
if bad then return bad end

if redis.call('TYPE', stream).ok == 'none' then return answer({ 0, 0, 0 }) end

local function parts(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

local function before(a, b)
  local x, m = parts(a)
  local y, n = parts(b)
  return x < y or (x == y and m < n)
end

-- The first entry that some group still needs: one that is pending, or the one behind the last that was delivered.
local floor, consumers = nil, 0
for _, raw in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local group = by_name(raw)
  local ms, seq = parts(group['last-delivered-id'])
  local needs = string.format('%.0f-%.0f', ms, seq + 1)
  if group.pending > 0 then -- @rule pending-kept
    local oldest = redis.call('XPENDING', stream, group.name)[2]
    if oldest and before(oldest, needs) then needs = oldest end
  end
  if not floor or before(needs, floor) then floor = needs end -- @rule all-groups-asked
  for _, each in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group.name)) do
    local consumer = by_name(each)
    if consumer.pending == 0 and consumer.idle > patience then -- @rule consumers-with-work-kept
      redis.call('XGROUP', 'DELCONSUMER', stream, group.name, consumer.name)
      consumers = consumers + 1
    end
  end
end

-- Whole nodes first, which costs little whatever they hold; the last one's entries then, if that is near.
local trimmed, dropped = 0, 0
if floor then
  trimmed = redis.call('XTRIM', stream, 'MINID', '~', floor, 'LIMIT', step)
  -- @rule last-node-trimmed
  if trimmed < step / 2 then trimmed = trimmed + redis.call('XTRIM', stream, 'MINID', floor) end
end
-- Only once nothing is left that all have acknowledged: what goes then is missing somewhere.
if most > 0 and trimmed < step / 2 and redis.call('XLEN', stream) > most then -- @rule dropped-only-behind-trim
  dropped = redis.call('XTRIM', stream, 'MAXLEN', '~', most, 'LIMIT', step)
  if dropped < step / 2 then dropped = dropped + redis.call('XTRIM', stream, 'MAXLEN', most) end
end
return answer({ trimmed, dropped, consumers })
