-- lib/dispatch/list_entries.lua: what stands in a ready list.
--
-- KEYS    ready list, processing list, taken hash
--           ready       entries, the newest on the left
--           processing  what workers have taken and not finished, if they keep one
--           taken       occurrence_id -> since when it is in there, microseconds, or, negative, when it went back; ';';
--                       how often it went back
--
-- An entry is a JSON object on one line, a line end, and the payload as it is. docs/how-to/dispatch.md has the members.

-- Nothing in it but whole characters of UTF-8.
local function is_utf8(text) -- see 0045
  if not string.find(text, '[\128-\255]') then return true end
  for _, each in ipairs({
    '[\194-\223][\128-\191]',
    '\224[\160-\191][\128-\191]',
    '[\225-\236\238\239][\128-\191][\128-\191]',
    '\237[\128-\159][\128-\191]',
    '\240[\144-\191][\128-\191][\128-\191]',
    '[\241-\243][\128-\191][\128-\191][\128-\191]',
    '\244[\128-\143][\128-\191][\128-\191]',
  }) do
    text = string.gsub(text, each, ' ')
  end
  return not string.find(text, '[\128-\255]')
end

-- Have Redis refuse now a push to the ready list that it would refuse later. Nobody sees what is pushed here.
local function may_push(command)
  redis.call('LREM', ready, 1, NO_NONCE)
  redis.call(command, ready, NO_NONCE)
  redis.call('LREM', ready, command == 'RPUSH' and -1 or 1, NO_NONCE)
end

local MAGIC = '\137BIN\13\10\26\10'

-- Payload and headers of an envelope. Other bytes are a payload; headers whose lengths don't add up are left out.
local function opened(envelope)
  if string.sub(envelope, 1, 8) ~= MAGIC or #envelope < 20 then return envelope, {} end
  local version, start, body, count = struct.unpack('>HIIH', envelope, 9)
  if version ~= 1 or start ~= 18 or body < 20 or body > #envelope then return envelope, {} end
  local at, texts = 21, {}
  for n = 1, 2 * count do
    if at + 1 > body then return string.sub(envelope, body + 1), {} end
    local length = struct.unpack('>H', envelope, at)
    texts[n] = string.sub(envelope, at + 2, at + 1 + length)
    at = at + 2 + length
  end
  local headers = {}
  if at == body + 1 then
    for n = 1, #texts, 2 do
      headers[texts[n]] = texts[n + 1]
    end
  end
  return string.sub(envelope, body + 1), headers
end

-- The envelope of a payload and headers.
local function sealed(payload, headers)
  local parts, count = {}, 0
  for name, text in pairs(headers) do
    count = count + 1
    parts[#parts + 1] = struct.pack('>H', #name) .. name .. struct.pack('>H', #text) .. text
  end
  local block = table.concat(parts)
  return MAGIC .. struct.pack('>HIIH', 1, 18, 20 + #block, count) .. block .. payload
end

local function head_of(id, r, occurrence, content_type, headers)
  return '{"timer_id":'
    .. cjson.encode(id)
    .. ',"occurrence_id":'
    .. cjson.encode(occurrence)
    .. string.format(',"due_time":%.6f', math.min(r.due, LATEST))
    .. (r.expires > 0 and string.format(',"expires":%.6f', r.expires) or '')
    .. ',"content_type":'
    .. cjson.encode(content_type)
    .. ',"headers":'
    .. cjson.encode(headers)
    .. '}'
end

local function entry_of(id, r, envelope, occurrence)
  local payload, headers = opened(envelope)
  local content_type = headers['content-type'] or ''
  headers['content-type'] = nil
  local head = head_of(id, r, occurrence, content_type, headers)
  if not is_utf8(head) then head = head_of(id, r, occurrence, '', {}) end -- a foreign writer's headers
  return head .. '\n' .. payload
end
