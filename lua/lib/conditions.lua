-- lib/conditions.lua: what a caller's change may depend on: until when its caller waits, and what it says of the timer;
-- and the caller's word for the timer that was there.
--
-- ARGV    until us
--         each_until text
-- Race    several callers share a call, and each waits until another instant. One timer travels with those of others, is
--         held up on its way, and given up before theirs. See lib/given_up.lua: what its caller has asked for since must
--         stand, and the others still wait for an answer.

-- The instant after which each timer is refused, if that is not `until` for all. `each_until` has them as doubles of
-- eight bytes, little-endian; '' where all callers wait as long.
local ends
-- @rule late-timers-told
if each_until ~= '' then ends = { struct.unpack('<' .. string.rep('d', #each_until / 8), each_until) } end

-- Whether a due time is the one that callers are told as `told`: the last whole microsecond not after it.
-- Foreign writers' due times lie in between.
local function told_as(told, due)
  due = math.min(due, LATEST)
  return told == due or (told <= due and due < (math.floor(told * 1e6 + 0.5) + 1) / 1e6) -- @rule due-time-as-told
end

-- Whether a caller's condition holds for a timer as `understand` sees it: nil, or the word that says
-- why not. `condition`: any of, in this order, 'h' and 40 hexadecimal digits (the SHA-1 of what is stored of its content;
-- `id` is its name, nil if this call has stored another content), 'p' (not while it is leased), 'l' (only then), 'd' and
-- a score (that is its due time).
local function refuses(condition, r, id)
  if string.sub(condition, 1, 1) == 'h' then
    local stored = id and redis.call('HGET', payloads, id)
    -- @rule content-asked-for
    if not stored or redis.sha1hex(stored) ~= string.sub(condition, 2, 41) then return 'UNCHANGED' end
    condition = string.sub(condition, 42)
  end
  if string.sub(condition, 1, 1) == 'p' then
    if r.state == LEASED then return 'IN_FLIGHT' end -- @rule lease-asked-for
    condition = string.sub(condition, 2)
  end
  if string.sub(condition, 1, 1) == 'l' then
    if r.state ~= LEASED then return 'UNCHANGED' end -- @rule no-lease-asked-for
    condition = string.sub(condition, 2)
  end
  -- @rule due-time-asked-for
  if string.sub(condition, 1, 1) == 'd' and not told_as(tonumber(string.sub(condition, 2)), r.due) then
    return 'UNCHANGED'
  end
end

-- The word for a timer that was there; ' UNDER_WAY' stands behind it if a delivery was: if its record explains its score,
-- and says that it is leased. The lease may have run out, since its handler may still be at work. IN_FLIGHT says as much
-- by itself. Most timers have no record, and `understand` takes as long as all else that is done for one.
local function told(word, score, raw)
  -- @rule delivery-under-way-told
  local under_way = raw and word ~= 'IN_FLIGHT' and understand(tonumber(score), raw).state == LEASED
  return under_way and word .. ' UNDER_WAY' or word
end
