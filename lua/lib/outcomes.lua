-- lib/outcomes.lua: what an outcome does to a timer: the part of lib/life.lua that settles.

local function dies(r, reason, text)
  r.received = (reason == 'unreadable' or reason == 'forgotten') and 0 or 1 -- whoever can't read it was given nothing
  return 'DEAD', reason, text
end

-- Nobody's lease any more, and due again after `wait` microseconds; `text` is what went wrong, if that was an attempt.
-- `find`, where there is one, finds the due time, or that nothing is left of the timer.
local function returned(r, now_us, wait, limits, text, find)
  r.state, r.nonce, r.received = PENDING, NO_NONCE, 0 -- @rule return-ends-lease
  r.at_us = now_us + wait
  if text and find and not find(r) then return 'LOST' end -- @rule lost-is-told
  local reason = text and fate(r, r.at_us, limits) -- @rule return-asks-for-ends
  if reason then return dies(r, reason, text) end
  return 'PENDING', nil, text
end

-- What each outcome does to a timer whose lease holds, and ends `r.ends_us`; `detail` as timeline/settle.lua has it.
local outcomes = { ack = true }

function outcomes.nack(r, now_us, detail, limits, find)
  local delay, text = cut(detail)
  r.attempts = r.attempts + 1 -- @rule nack-counts
  r.suspect = 0
  local wait = delay == '' and r.ends_us - now_us or tonumber(delay) -- @rule nack-waits
  return returned(r, now_us, wait, limits, text, find)
end

function outcomes.release(r, now_us, detail, limits, find)
  local flags, delay = cut(detail)
  local received = r.received == 1 or string.find(flags, 'r', 1, true) -- @rule release-counts-receipt
  local unsent = string.find(flags, 'u', 1, true)
  if unsent then r.claims = math.max(r.claims - 1, 0) end -- @rule unsent-claim-uncounted
  if string.find(flags, 'b', 1, true) then
    r.suspect = suspected(r, received and 1 or 0, limits) -- @rule break-raises-suspicion
  elseif not unsent then -- @rule unsent-keeps-suspicion
    r.suspect = string.find(flags, 's', 1, true) and 1 or 0 -- @rule release-clears-suspicion
  end
  if received then r.attempts = r.attempts + 1 end -- @rule release-counts
  local wait = (received or unsent) and tonumber(delay) or 0 -- @rule unreceived-waits-for-nothing
  return returned(r, now_us, wait, limits, received and 'the delivery ended without an outcome', find)
end

function outcomes.reject(r, _, detail)
  local reason, text = cut(detail)
  r.attempts = r.attempts + 1 -- @rule reject-counts
  return dies(r, reason, text)
end

-- Answers its score and its envelope, '' to keep the one that is there.
function outcomes.reschedule(_, now_us, detail)
  local when, envelope = cut(detail)
  return 'RESCHEDULED', math.min(instant(when, now_us), LATEST), envelope -- @rule reschedule-before-9999
end
