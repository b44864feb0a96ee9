-- lib/letters.lua: how dead timers are kept.
--
-- KEYS    dead stream

-- Keep one, with what more there is to say of it as names and values; answers the entry's id, which tells its death
-- from others of the timer.
local function keep_letter(id, r, envelope, reason, text, now_us, ...)
  -- stylua: ignore
  return redis.call('XADD', dead, '*', 'timer_id', id, 'reason', reason, 'attempts', r.attempts, 'claims', r.claims,
    'due', number(r.due), 'died', string.format('%.0f', now_us),
    'occurrence', r.occurrence, -- @rule letter-keeps-occurrence
    'error', text, 'envelope', envelope or '', ...) -- @rule letter-keeps-error-and-content
end

-- The dead of this call, each { timer_id, record, envelope or false, reason, last error, nonce of its last lease, keep }.
local letters = {}

-- Keep the dead. To be called before anything of them is removed: where XADD is not permitted, no timer is lost. A delete
-- comes first, so that a Redis at its maxmemory takes the rest. And no letter is kept of a death that can't be recorded:
-- each claim would keep one more.
local function bury(now_us) -- see 0027
  if JOURNAL and #letters > 0 then may_append() end -- @rule append-asked-before-burial
  if #letters > 0 then redis.call('XDEL', dead, '0-0') end -- @rule burial-behind-a-delete
  for _, each in ipairs(letters) do
    local id, r, envelope, reason, text, lapsed, kept_too = unpack(each)
    local name = kept_too and keep_letter(id, r, envelope, reason, text, now_us)
    if JOURNAL then
      local why = reason == 'expired' and expires_is(r.expires) or reason_is(reason, text)
      local kind = reason == 'expired' and EXPIRED or DEAD -- @rule expired-noted-as-expired
      local letter = dead_id_is(name) -- @rule letter-noted
      local facts = nonce_is(lapsed) .. occurrence_is(r.occurrence) .. standing_is(r) .. received_is(r.received)
      note(kind, id, facts .. why .. adopted_is(r.adopted) .. letter)
    end
  end
end
