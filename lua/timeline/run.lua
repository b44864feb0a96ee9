-- timeline/run.lua: make timers due now.
--
-- KEYS    timeline zset, payloads hash, leases hash
-- Uses    life, timeline
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         channel text              of wake hints
-- Tail    timer_ids
-- Returns for each timer 'OK' | 'IN_FLIGHT' (a relay delivers it; nothing changed) | 'GONE'
--         error WRONGKEYTYPE; error LEAVING <timer_id>
-- Race    a relay that claims the timer at the same moment: whoever comes second sees what the first
--         has written, so that a lease is never taken away by this.

local bad = wrong_type()
if bad then return bad end

local before = head()
local ids = { unpack(ARGV, tail) }
local away = here.on_its_way(ids)
if away then return away end
local scores = redis.call('ZMSCORE', timeline, unpack(ids))
local reply = {}
for n, id in ipairs(ids) do
  local r = scores[n] and understand(tonumber(scores[n]), redis.call('HGET', leases, id))
  local due = r and r.due
  reply[n] = not r and 'GONE' or ran(r, now_us) or 'OK'
  if reply[n] == 'OK' then
    r.score = own_score(now_us, r.due) -- @rule run-off-grid
    keep(id, number(r.score), pack(r))
    if JOURNAL then
      note(RUN, id, standing_is(r) .. score_is(r.score) .. previous_due_is(due) .. adopted_is(r.adopted))
    end
  end
end
if #kept > 0 then
  write(now_us)
  hint(channel, before, head()) -- @rule run-hints
end
return answer(reply)
