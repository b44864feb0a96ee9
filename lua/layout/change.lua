-- layout/change.lua: give a topic another layout, if it still has the one that the caller knows.
--
-- KEYS    layout string, move hash, first hash, marks hash
--           move     see lib/move.lua
--           first    the lease records of the topic's first partition. Those of a topic without a layout lie under the
--                    layout's own name, and move there
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         known text                the layout that the caller goes by; '' if the topic has none
--         becomes text
--         rate count                timers a second that may be moved by it, 0: any number
-- Returns the layout that the topic has now
--         error WRONGKEYTYPE if there is neither a layout nor lease records in its place; error SWEPT if a move would
--         begin, and a sweep of the cold store has not ended
-- Race    two who change it: whoever comes second reads what the first has made of it, and has done nothing. A late call
--         of somebody who was given up finds another layout than it knows.
-- Race    a sweep that begins at the same time: its marks in the first partition come first, and the move is refused, or
--         bulk/marks.lua finds the new layout, and refuses the sweep. Marks don't move: what ends elsewhere would be
--         loaded again.
-- Full    the first write is a delete or a rename.

local kind = redis.call('TYPE', layout).ok
if kind ~= 'none' and kind ~= 'string' and kind ~= 'hash' then
  return fail('WRONGKEYTYPE', layout .. ' holds a ' .. kind .. ', not a string')
end
local stands = kind == 'string' and redis.call('GET', layout) or ''
if stands ~= known then return answer(stands) end -- @rule changes-by-comparison
local moves = string.find(becomes, '^%d+ %d+ %d+$')
if moves and redis.call('TYPE', marks).ok == 'hash' then return fail('SWEPT', marks) end -- @rule sweeps-come-to-their-end
if kind == 'hash' then
  redis.call('RENAME', layout, first) -- @rule lease-records-make-way
else
  redis.call('DEL', layout)
end
redis.call('DEL', move)
redis.call('SET', layout, becomes)
if rate > 0 then redis.call('HSET', move, 'rate', rate) end
return answer(becomes)
