-- timeline/extend.lua: renew leases, and record receipts.
--
-- KEYS    timeline zset, payloads hash, leases hash
-- Uses    life, timeline
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         channel text              of wake hints
--         lease us                  from now
-- Tail    of each timer, each once: timer_id, nonce, '1' if received, else ''
-- Returns { lease deadline as a score, then for each timer 'OK' | 'STALE' | 'GONE' }
--         error WRONGKEYTYPE; error DUPLICATE <timer_id>; error LEAVING <timer_id>
-- Race    a renewal that meets the ACK of the same lease: the nonce stays, so the ACK holds
--         whichever comes first, and a renewal that comes second finds the timer gone.
-- Race    the clock has stepped back, and others sleep until the lease ends by the clock of before: they are told.
-- Full    the first write is a delete, so that a Redis at its maxmemory still renews.

local bad = wrong_type()
if bad then return bad end

local ids, seen = {}, {}
for i = tail, #ARGV, 3 do
  local id = ARGV[i]
  if seen[id] then return fail('DUPLICATE', id) end -- @rule extend-once-a-timer
  seen[id] = true
  ids[#ids + 1] = id
end

local away = here.on_its_way(ids)
if away then return away end

local deadline = own_score(now_us + lease, 0)
local scores = redis.call('ZMSCORE', timeline, unpack(ids))
local records = redis.call('HMGET', leases, unpack(ids))
local reply = { number(deadline) }
local is_sooner = false

for n, id in ipairs(ids) do
  local at = tail + 3 * (n - 1)
  local nonce, received = ARGV[at + 1], ARGV[at + 2] ~= ''
  local score = tonumber(scores[n] or nil)
  if score and holds(score, records[n], nonce) then
    local r = unpack_record(records[n])
    reply[n + 1] = 'OK'
    extended(r, received, now_us + lease)
    is_sooner = is_sooner or r.score < score
    keep(id, r.score, pack(r))
    -- @rule receipt-told-from-renewal
    if JOURNAL then note(received and RECEIVED or EXTENDED, id, nonce_is(nonce) .. score_is(r.score)) end
  else
    reply[n + 1] = score and 'STALE' or 'GONE'
    if not score then forgotten[#forgotten + 1] = id end
    if JOURNAL and (score or not here.leaving) then -- @rule absent-leases-go-on
      if not score then note_taken(id, records[n]) end
      note_refusal(id, nonce, received and RECEIVED or EXTENDED, score and understand(score, records[n]))
    end
  end
end

local before = is_sooner and head()
write(now_us)
if before then hint(channel, before, head()) end -- @rule sooner-leases-hint
return answer(reply)
