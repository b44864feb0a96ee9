-- layout/heartbeat.lua: note that a relay polls a topic, or does so no more, and say which relays do.
--
-- KEYS    relays zset
--           relays   the name of each relay that polls the topic -> the instant in microseconds until which that counts
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         relay text                its name
--         lasts us                  for how long its word counts; 0: it polls the topic no more
-- Returns the names of the relays that poll the topic, in any order
--         error WRONGKEYTYPE
-- Race    a relay dies, or is frozen, and takes nothing back: its word ends by itself, by this server's clock. Where that
--         clock has stepped back, a word from before counts for longer than any that is given now, and is dropped. All
--         relays give the same `lasts`.
-- Full    the first write is a delete.

local bad = wrong_type()
if bad then return bad end

local gone = redis.call('ZRANGEBYSCORE', relays, '-inf', number(now_us), 'LIMIT', 0, 1000) -- @rule heartbeats-end
if lasts > 0 then
  local ahead = redis.call('ZRANGEBYSCORE', relays, '(' .. number(now_us + lasts), '+inf', 'LIMIT', 0, 1000) -- @rule heartbeats-of-a-later-clock-end
  for _, each in ipairs(ahead) do
    gone[#gone + 1] = each
  end
end
redis.call('ZREM', relays, relay, unpack(gone)) -- @rule who-leaves-is-forgotten
if lasts > 0 then redis.call('ZADD', relays, number(now_us + lasts), relay) end
return answer(redis.call('ZRANGE', relays, 0, -1))
