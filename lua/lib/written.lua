-- lib/written.lua: write something and take it back. It belongs to no verb: it is sent behind the scripts whose
-- changes WAIT or WAITAOF are then asked about, over the same connection; see relay/store/server/group_commit.py.
--
-- KEYS    written string
--           written  never there before or behind it
-- Race    WAIT and WAITAOF wait for the last change of their own connection. A call that is repeated may find that its
--         first try has done everything, and changes nothing; so there is nothing to wait for, and it would be answered
--         before the first try's change is as durable as was asked.
-- Full    the first write is a delete.

redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], '')
redis.call('DEL', KEYS[1])
