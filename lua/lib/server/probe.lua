-- lib/server/probe.lua: try commands, and answer which of them the server refuses. It is a script by itself.
--
-- KEYS[1] a key of nobody's
-- ARGV    of each command its name and arguments, with spaces between; 'k' stands for the key
-- Returns { name, the server's words, and so on, of each command that was refused }
--
-- The key holds a text meanwhile, so that what would write to it meets a wrong type. The text goes with it, and has a time
-- to live where it may not.

local refused = {}
local function try(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    refused[#refused + 1], refused[#refused + 2] = ..., reply.err
    return false
  end
  return true
end

local is_there = try('SET', KEYS[1], '', 'PX', '1000')
if try('DEL', KEYS[1]) or is_there then
  if is_there then redis.pcall('SET', KEYS[1], '', 'PX', '1000') end
  for _, line in ipairs(ARGV) do
    local words = {}
    for word in string.gmatch(line, '%S+') do
      words[#words + 1] = word == 'k' and KEYS[1] or word
    end
    try((table.unpack or unpack)(words))
  end
  redis.pcall('DEL', KEYS[1])
end
return refused
