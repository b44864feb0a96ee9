-- people/letters.lua: read one page of dead letters, the oldest death first, without their envelopes.
--
-- KEYS    timeline zset, payloads hash, leases hash, dead stream
-- Writes  nothing
-- ARGV[1] at most so many entries
-- ARGV[2] id of the last entry of the page before; '' for the first page
-- ARGV[3] bytes of envelopes after which the page ends: they pass through this script
-- ARGV[4] entries to read at a time at most
-- Returns { '1' if there is more, else '', then for each entry its id and its fields and values }
--         error WRONGKEYTYPE
-- Race    none: deaths are only added behind, and what goes meanwhile is not seen.

local bad = wrong_type()
if bad then return bad end

local limit, room, step = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])
local after = ARGV[2] == '' and '-' or '(' .. ARGV[2] -- @rule page-starts-behind-last
local reply, count, bytes = { '' }, 0, 0

local function read()
  while true do
    local entries = redis.call('XRANGE', KEYS[4], after, '+', 'COUNT', step)
    for _, entry in ipairs(entries) do
      if count == limit or bytes > room then return '1' end -- @rule page-bounded-by-bytes
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
      after = '(' .. entry[1]
    end
    if #entries < step then return '' end -- @rule page-ends-at-the-end
  end
end

reply[1] = read()
return reply
