-- people/letters.lua: read one page of dead letters, the oldest death first, without their envelopes.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream
-- Writes  nothing
-- ARGV    limit count               entries at most
--         after text                id of the last entry of the page before; '' for the first page
--         max_bytes bytes           of envelopes after which the page ends: they pass through this script
--         at_once count             entries to read at a time at most
-- Returns { '1' if there is more, else '', then for each entry its id and its fields and values }
--         error WRONGKEYTYPE
-- Race    none: deaths are only added behind, and what goes meanwhile is not seen.

local bad = wrong_type()
if bad then return bad end

local from = after == '' and '-' or '(' .. after -- @rule page-starts-behind-last
local reply, count, bytes = { '' }, 0, 0

local function read()
  while true do
    local entries = redis.call('XRANGE', dead, from, '+', 'COUNT', at_once)
    for _, entry in ipairs(entries) do
      if count == limit or bytes > max_bytes then return '1' end -- @rule page-bounded-by-bytes
      local fields = {}
      for i = 1, #entry[2], 2 do
        local name, value = entry[2][i], entry[2][i + 1]
        if name ~= 'envelope' then -- @rule page-without-content
          fields[#fields + 1], fields[#fields + 2] = name, value
        else
          bytes = bytes + #value
        end
      end
      count = count + 1
      reply[2 * count], reply[2 * count + 1] = entry[1], fields
      from = '(' .. entry[1]
    end
    if #entries < at_once then return '' end -- @rule page-ends-at-the-end
  end
end

reply[1] = read()
return reply
