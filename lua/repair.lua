-- repair.lua: remove payloads and lease records that have no timer.
--
-- KEYS    timeline, payloads, leases
-- ARGV    timer_ids that had none a grace period ago
-- Returns { payloads removed, lease records removed }
--         error WRONGKEYTYPE
-- Race    a timer that was scheduled meanwhile: whether it is there is asked again here, in the same
--         step as the removal.

local bad = wrong_type()
if bad then return bad end

local orphans = {}
for n, score in ipairs(redis.call('ZMSCORE', KEYS[1], unpack(ARGV))) do
  if not score then orphans[#orphans + 1] = ARGV[n] end
end
if #orphans == 0 then return answer({ 0, 0 }) end
if JOURNAL then
  for _, id in ipairs(orphans) do note_remains(id) end
  append_always(time_us())
end
return answer({ redis.call('HDEL', KEYS[2], unpack(orphans)), redis.call('HDEL', KEYS[3], unpack(orphans)) })
