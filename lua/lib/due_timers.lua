-- lib/due_timers.lua: what becomes of timers whose score has come, whoever takes those that live.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream
-- ARGV    grace us
--         limits limits

local parked, orphans, deaths = 0, {}, {} -- how many; ids; ids before the reasons of their deaths

-- How many payloads to read next, at most `most`: as many as there is room for if none is larger than those before. So
-- one command serves many timers, and few are read in vain.
local function as_many_as_fit(room, largest, most) return math.max(1, math.min(most, math.floor(room / largest))) end

-- Claim one. Answers whether it lives and is to be handed out, and what the journal has of its last lease: whether that
-- was received, and its nonce. What else becomes of it is stored.
local function claim_one(id, r, envelope, now_us, unreadable)
  local received, lapsed = r.received, r.nonce
  local became, reason = claimed(r, now_us, limits, envelope, unreadable)
  if became == 'LEASED' then return true, received, lapsed end
  if became == 'PARKED' then
    parked = parked + 1
    r.nonce, r.score = NO_NONCE, own_score(now_us + grace, r.due) -- @rule parking-ends-lease
    keep(id, r.score, pack(r))
    if JOURNAL then
      local facts = nonce_is(lapsed) .. standing_is(r) .. score_is(r.score) .. received_is(received)
      note(KIND_PARKED, id, facts .. adopted_is(r.adopted))
    end
  elseif became == 'ORPHANED' then
    orphans[#orphans + 1] = id
    remove(id)
    if JOURNAL then note(ORPHANED, id, due_is(r.due)) end -- @rule orphan-noted
  elseif became == 'DEAD' then
    deaths[#deaths + 1], deaths[#deaths + 2] = id, reason
    remove(id)
    r.received = received
    local text = reason == 'unreadable' and 'the id is not UTF-8' or ''
    local kept_too = limits.keep and (reason ~= 'expired' or limits.keep_expired) -- @rule letters-by-policy
    letters[#letters + 1] = { id, r, envelope, reason, text, lapsed, kept_too }
  end
end
