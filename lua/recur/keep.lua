-- recur/keep.lua: keep a recurrence, change it, or remove it.
--
-- KEYS    timeline zset, rules hash, standings hash, ticks zset, names zset
-- Uses    recurring
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         id text                   of the recurrence
--         stood text                where it stood when it was read; '' if there was none, or it lacked a part
--         rule text                 what is to recur; '' to remove it
--         stands text               where it stands from now on
--         look text                 when to look at it: microseconds, or 'inf'
--         before s                  its next nominal instant before, since 1970, 0 for none; for the journal
--         following s               and from now on
--         reason text               what somebody does
-- Returns 'OK'; 'OTHER' if it does not stand as it was read, and nothing was changed
--         error WRONGKEYTYPE; error OOM from Redis, with nothing written, since ZADD, or the journal's XADD, is the first
--         write, unless it is removed
-- Race    two who change one recurrence, or one who changes it and a tick: the second finds that it stands elsewhere, and
--         begins again.

local bad = wrong_type()
if bad then return bad end

-- @rule standings-need-rules
local is = redis.call('HEXISTS', rules, id) == 1 and redis.call('HGET', standings, id) or ''
if is ~= stood then return answer('OTHER') end -- @rule changes-compare-standing
if JOURNAL then
  note(CHANGED, id, due_is(following) .. previous_due_is(before) .. reason_is(reason))
  if rule == '' then -- a delete comes first, so that a full server takes it
    append_always(now_us)
  else
    append(now_us)
  end
end
if rule == '' then
  redis.call('HDEL', rules, id)
  redis.call('HDEL', standings, id)
  redis.call('ZREM', ticks, id)
  redis.call('ZREM', names, id)
else
  redis.call('ZADD', ticks, look, id)
  redis.call('ZADD', names, 0, id)
  redis.call('HSET', rules, id, rule)
  redis.call('HSET', standings, id, stands)
end
return answer('OK')
