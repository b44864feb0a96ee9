-- lib/reseal/letter_copy.lua: a copy of dead letters in the making.

-- Whether a copy of dead letters is that of this run, which its first entry names.
local function is_of_run(key, name)
  local own = redis.call('XRANGE', key, '0-1', '0-1')[1]
  return own and own[2][2] == name
end
