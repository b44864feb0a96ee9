-- What a server gives its scripts besides Lua, in Lua 5.4, as far as Relay's scripts use it. `...` are functions of the
-- engine: `command` runs one, and says whether it went well; `sha1` and `decode` are written in Python.

local command, sha1, decode = ...

-- lua_struct.c's formats are those of string.pack, which is stricter: what does not fit is an error.
local struct = { pack = string.pack, unpack = string.unpack, size = string.packsize }

-- ------------------------------------------------------------------ cmsgpack

local function is_array(t)
  local count, most = 0, 0
  for k in pairs(t) do
    if math.type(k) ~= 'integer' or k < 1 then return false end
    count, most = count + 1, math.max(most, k)
  end
  return count == most
end

local function counted(n, small, most, one, two, four)
  if n <= most then return string.pack('B', small + n) end
  if one and n <= 0xff then return string.pack('BB', one, n) end
  if n <= 0xffff then return string.pack('>BI2', two, n) end
  return string.pack('>BI4', four, n)
end

local function pack_integer(n)
  if n >= 0 then
    if n <= 127 then return string.pack('B', n) end
    if n <= 0xff then return string.pack('BB', 0xcc, n) end
    if n <= 0xffff then return string.pack('>BI2', 0xcd, n) end
    if n <= 0xffffffff then return string.pack('>BI4', 0xce, n) end
    return string.pack('>BI8', 0xcf, n)
  end
  if n >= -32 then return string.pack('b', n) end
  if n >= -0x80 then return string.pack('Bb', 0xd0, n) end
  if n >= -0x8000 then return string.pack('>Bi2', 0xd1, n) end
  if n >= -0x80000000 then return string.pack('>Bi4', 0xd2, n) end
  return string.pack('>Bi8', 0xd3, n)
end

local function pack(x)
  local kind = type(x)
  if kind == 'string' then return counted(#x, 0xa0, 31, 0xd9, 0xda, 0xdb) .. x end
  if kind == 'number' then
    local n = math.tointeger(x)
    if n then return pack_integer(n) end
    local short = string.pack('>f', x)
    if string.unpack('>f', short) == x then return '\xca' .. short end
    return string.pack('>Bd', 0xcb, x)
  end
  if kind == 'boolean' then return x and '\xc3' or '\xc2' end
  if kind ~= 'table' then return '\xc0' end
  local parts = { '' }
  if is_array(x) then
    parts[1] = counted(#x, 0x90, 15, nil, 0xdc, 0xdd)
    for i = 1, #x do
      parts[#parts + 1] = pack(x[i])
    end
  else
    local size = 0
    for k, v in pairs(x) do
      size = size + 1
      parts[#parts + 1] = pack(k) .. pack(v)
    end
    parts[1] = counted(size, 0x80, 15, nil, 0xde, 0xdf)
  end
  return table.concat(parts)
end

local FORMATS = {
  [0xca] = '>f', [0xcb] = '>d', [0xcc] = 'B', [0xcd] = '>I2', [0xce] = '>I4', [0xcf] = '>I8',
  [0xd0] = 'b', [0xd1] = '>i2', [0xd2] = '>i4', [0xd3] = '>i8',
  [0xd9] = 's1', [0xda] = '>s2', [0xdb] = '>s4', [0xc4] = 's1', [0xc5] = '>s2', [0xc6] = '>s4',
}

local unpack_at

local function unpack_many(text, at, count, is_map)
  local t = {}
  for i = 1, count do
    local k, v = i, nil
    if is_map then
      k, at = unpack_at(text, at)
    end
    v, at = unpack_at(text, at)
    t[k] = v
  end
  return t, at
end

function unpack_at(text, at)
  local head = string.byte(text, at)
  if not head then error('Missing bytes in input.') end
  if head <= 0x7f then return head, at + 1 end
  if head <= 0x8f then return unpack_many(text, at + 1, head - 0x80, true) end
  if head <= 0x9f then return unpack_many(text, at + 1, head - 0x90) end
  if head <= 0xbf then return string.sub(text, at + 1, at + head - 0xa0), at + 1 + head - 0xa0 end
  if head >= 0xe0 then return head - 256, at + 1 end
  if head == 0xc0 then return nil, at + 1 end
  if head == 0xc2 or head == 0xc3 then return head == 0xc3, at + 1 end
  if FORMATS[head] then return string.unpack(FORMATS[head], text, at + 1) end
  local count, first = string.unpack((head == 0xdc or head == 0xde) and '>I2' or '>I4', text, at + 1)
  return unpack_many(text, first, count, head >= 0xde)
end

local cmsgpack = { pack = pack, unpack = function(text) return (unpack_at(text, 1)) end }

-- --------------------------------------------------------------------- cjson

local ESCAPES = { ['"'] = '\\"', ['\\'] = '\\\\', ['/'] = '\\/', ['\b'] = '\\b', ['\f'] = '\\f' }
ESCAPES['\n'], ESCAPES['\r'], ESCAPES['\t'] = '\\n', '\\r', '\\t'

local function escaped(char) return ESCAPES[char] or string.format('\\u%04x', string.byte(char)) end

local function encode(x)
  if type(x) == 'string' then return '"' .. string.gsub(x, '[%c"\\/]', escaped) .. '"' end
  if type(x) == 'number' then return string.format('%.14g', x) end
  if type(x) ~= 'table' then return tostring(x) end
  local parts, array = {}, next(x) ~= nil and is_array(x)
  for k, v in pairs(x) do
    parts[#parts + 1] = array and encode(v) or encode(k) .. ':' .. encode(v)
  end
  local inside = table.concat(parts, ',')
  return array and '[' .. inside .. ']' or '{' .. inside .. '}'
end

local cjson = { encode = encode, decode = decode }

-- ------------------------------------------------------------------- sandbox

local redis = { sha1hex = sha1 }

function redis.pcall(...)
  local went_well, reply = command(...)
  if went_well then return reply end
  return { err = reply }
end

function redis.call(...)
  local went_well, reply = command(...)
  if went_well then return reply end
  error({ err = reply })
end

function redis.error_reply(text) return { err = text } end

-- What 5.4 has, and none of what it has not: a script that asks for `unpack` gets the error that a server gives.
local allowed = {
  assert = assert, error = error, getmetatable = getmetatable, ipairs = ipairs, next = next, pairs = pairs,
  pcall = pcall, rawequal = rawequal, rawget = rawget, rawlen = rawlen, select = select, setmetatable = setmetatable,
  tonumber = tonumber, tostring = tostring, type = type, xpcall = xpcall, _VERSION = _VERSION,
  coroutine = coroutine, math = math, string = string, table = table,
  redis = redis, cjson = cjson, cmsgpack = cmsgpack, struct = struct,
}
setmetatable(allowed, {
  __index = function(_, name) error('Script attempted to access nonexistent global variable ' .. name, 2) end,
  __newindex = function() error('Attempt to modify a readonly table', 2) end,
})

local compiled = {}

-- Run a script: whether it went well; its reply, or the error's text.
local function run(name, text, keys, argv)
  local script = compiled[name]
  if not script then
    local environment = setmetatable({}, { __index = allowed, __newindex = getmetatable(allowed).__newindex })
    local made, problem = load(text, '@user_script', 't', environment)
    if not made then return false, 'ERR Error compiling script (new function): ' .. problem end
    script = { made, environment }
    compiled[name] = script
  end
  rawset(script[2], 'KEYS', keys)
  rawset(script[2], 'ARGV', argv)
  local went_well, reply = pcall(script[1])
  if went_well then return true, reply end
  local told = type(reply) == 'table' and reply.err or 'ERR ' .. tostring(reply)
  return false, told .. ' script: ' .. name .. ', on @user_script:0.'
end

return run
