-- lib/server/dialect.lua: what Lua 5.1 and 5.4 do otherwise. It is put before all else, so that a script gives the same bytes by
-- either; see 0100.
--
-- Redis, and Valkey up to 9, have Lua 5.1, whose numbers are doubles. 5.4 has integers, too, and adds those exactly beyond
-- 2^53, where doubles are rounded. So each number that is read is a double here as well. 5.4 prints it as 4.0, where 5.1
-- prints 4: hence numbers become text by `string.format` alone. And it takes no 'inf' and 'nan' for numbers, which foreign
-- writers may give as scores.

local unpack = table.unpack or unpack
local tonumber = tonumber

if math.type then
  local read, named = tonumber, { inf = math.huge, infinity = math.huge, nan = 0 / 0 }
  function tonumber(value, base)
    local x = read(value, base)
    if x or type(value) ~= 'string' then return x and x + 0.0 end
    local sign, name = string.match(string.lower(value), '^%s*([+-]?)(%a+)%s*$')
    return name and named[name] and (sign == '-' and -named[name] or named[name])
  end
end
