-- lib/text.lua: forms of bytes and of replies.

-- Bytes as hexadecimal digits, and back.
local function hex(bytes)
  return (string.gsub(bytes, '.', function(char) return string.format('%02x', string.byte(char)) end))
end
local function unhex(digits)
  return (string.gsub(digits, '%x%x', function(two) return string.char(tonumber(two, 16)) end))
end

-- A flat array of names and values, as commands answer it, by name.
local function by_name(flat)
  local it = {}
  for i = 1, #flat, 2 do
    it[flat[i]] = flat[i + 1]
  end
  return it
end
