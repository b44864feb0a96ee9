-- timeline/cancel.lua: remove timers.
--
-- KEYS    timeline zset, payloads hash, leases hash, marks hash
-- Uses    conditions
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         each_until text           and the same of each timer, or ''; see lib/conditions.lua
-- Tail    of each timer: timer_id, condition, '' for none; see `refuses`
-- Returns for each timer 'CANCELLED' | 'GONE' | 'IN_FLIGHT' | 'UNCHANGED', behind CANCELLED and UNCHANGED
--         ' UNDER_WAY': see `told`; an id that comes twice is cancelled once;
--         'GIVENUP': the time of its caller was over
--         error WRONGKEYTYPE; error LEAVING <timer_id>
-- Race    a timer that is cancelled while a relay delivers it: its record goes too, so that what
--         is scheduled under that id later can't be settled by the old delivery.

local bad = wrong_type()
if bad then return bad end

local ids, gone, reply, seen = {}, {}, {}, {}
for i = tail, #ARGV, 2 do
  ids[#ids + 1] = ARGV[i]
end
local away = here.on_its_way(ids)
if away then return away end
local scores = redis.call('ZMSCORE', timeline, unpack(ids))
local records -- of all ids, once one of them is there
for n, id in ipairs(ids) do
  local condition = ARGV[tail + 2 * n - 1]
  local word = nil
  if ends and is_over(ends[n]) then word = 'GIVENUP' end -- @rule late-timer-not-cancelled
  if here.leaving and not scores[n] then word = word or 'GONE' end -- @rule absent-cancels-go-on
  local there, r = scores[n] and not seen[id] and not word, nil -- @rule cancelled-once
  if there then records = records or redis.call('HMGET', leases, unpack(ids)) end
  if there and (condition ~= '' or JOURNAL) then -- @rule cancel-asks
    r = understand(tonumber(scores[n]), records[n])
    word = refuses(condition, r, id)
  end
  reply[n] = there and told(word or 'CANCELLED', scores[n], records[n]) or word or 'GONE'
  if not word then
    if JOURNAL and there then
      note(CANCELLED, id, nonce_is(r.nonce) .. due_is(r.due) .. adopted_is(r.adopted)) -- @rule cancel-names-lease
    elseif JOURNAL and not seen[id] then
      note_remains(id)
    end
    seen[id] = true
    -- @rule cancel-marks-absent-too
    gone[#gone + 1] = id -- also what is not there: a payload alone is an orphan
  end
end
if #gone > 0 then -- @rule refused-cancels-unmarked
  if JOURNAL then append_always(now_us) end -- @rule cancel-noted
  redis.call('HDEL', leases, unpack(gone)) -- @rule cancel-clears-record
  redis.call('HDEL', payloads, unpack(gone)) -- @rule cancel-clears-payload
  redis.call('ZREM', timeline, unpack(gone))
  -- @rule cancel-marked
  mark(gone) -- also what is not there: it may rest in the cold store
end
return answer(reply)
