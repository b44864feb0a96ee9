-- people/record.lua: append to the action log.
--
-- KEYS    actions stream, policy string
--           actions  one entry for what somebody is about to do, and one for what came of it; see relay/core/trust/actions.py
--           policy   the digest of the policy that the newest entry about one says
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         keep count                entries that stay at most
--         once text                 the digest of the policy that the entry is about; '' for all other entries
-- Tail    names and values of the entry's fields
-- Returns { the entry's id, how many of the oldest entries were removed }
--           the id is '' if the newest entry about a policy says this digest already, and nothing was written
--         error WRONGKEYTYPE
-- Race    a hundred relays take over one file: the first to come writes the entry, and the others find its digest.
-- Full    the first write is a delete: what drains a Redis at its maxmemory is recorded, too.

local bad = wrong_type()
if bad then return bad end

local fields = { unpack(ARGV, tail) }
local function add(name, value)
  fields[#fields + 1], fields[#fields + 2] = name, value
end

add('time', string.format('%.0f', now_us))
if once ~= '' then
  local before = redis.call('GET', policy) or ''
  if before == once then return { '', 0 } end -- @rule one-entry-a-policy
  add('before', before) -- @rule policy-before-is-said
end
redis.call('XDEL', actions, '0-0') -- @rule record-begins-with-a-delete
if once ~= '' then redis.call('SET', policy, once) end
local entry = redis.call('XADD', actions, '*', unpack(fields))
return { entry, redis.call('XTRIM', actions, 'MAXLEN', keep) } -- @rule record-trimmed
