-- lib/conditions.lua: what a caller's change may depend on, and the caller's word for the timer that was there.

-- Whether a due time is the one that callers are told as `told`: the last whole microsecond not after it.
-- Foreign writers' due times lie in between.
local function told_as(told, due)
  due = math.min(due, LATEST)
  return told == due or (told <= due and due < (math.floor(told * 1e6 + 0.5) + 1) / 1e6) -- @rule due-time-as-told
end

-- Whether a caller's condition holds for a timer as `understand` sees it: nil, or the word that says
-- why not. `condition`: any of 'p' (not while it is leased), 'd' and a score (that is its due time).
local function refuses(condition, r)
  if string.sub(condition, 1, 1) == 'p' then
    if r.state == LEASED then return 'IN_FLIGHT' end -- @rule lease-asked-for
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
