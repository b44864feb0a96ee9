-- lib/layout.lua: what the scripts share that are called for a partition of a topic with a layout. It is put behind the
-- prelude, the journal and what refuses late calls, and refuses a caller who goes by an older layout than the partition
-- has seen. For a topic without a layout it is left out. See 0084.
--
-- KEYS[#KEYS-1], KEYS[#KEYS] layout STRING, move HASH; the journal, if there is one, comes behind them
--           layout   the text of the layout that the partition has seen last, 'epoch count', and ' towards' while timers
--                    move; behind it ' ?' for as long as the partition has not been told whether the topic is paused
--           move     what is on its way from here or to here; see lib/move.lua
-- ARGV[#ARGV] the partition's number and the caller's layout: '3 1 8'; and ' leaving' if the call is about timers that
--         the move takes away from here. Such a call takes in nothing: what is not here is where the move fills.
-- Race    a partition that comes into use, or comes again, knows nothing of a pause, or of one that is over. It hands out
--         nothing until it has been told; see layout/tell_pause.lua. The first one is in every layout, and is asked.
-- Race    a call is sent by a layout, and the layout changes before it comes: its timer belongs elsewhere by now, and a
--         write here would be found by nobody. So the call is refused, and its caller begins again by the new one.
-- Full    the first write is a delete.

local layout, move

do
  local at = #KEYS - (JOURNAL and 2 or 1)
  layout, move = KEYS[at], KEYS[at + 1]
  KINDS[at], KINDS[at + 1] = 'string', 'hash'

  local number, text, ends = string.match(table.remove(ARGV), '^(%d+) (%d[%d ]*%d)(.*)$')
  local seen = redis.call('GET', layout) or ''
  here.leaving, here.number, here.text = ends == ' leaving', tonumber(number), text

  local function epoch_of(some) return tonumber(string.match(some, '^%d+') or 0) end

  -- Keep the caller's layout instead of an older one. Nothing is on its way by that one: a layout ends when all has arrived.
  local function raise(older)
    local epoch, count, towards = string.match(older, '^(%d+) (%d+) ?(%d*)$')
    local follows = epoch and tonumber(epoch) + 1 == epoch_of(text)
    local was_in_use = follows and tonumber(number) < math.max(tonumber(count), tonumber(towards) or 0)
    here.pause_unknown = number ~= '0' and (here.pause_unknown or not was_in_use) -- @rule pause-asked-for-anew
    redis.call('DEL', layout, move)
    redis.call('SET', layout, here.pause_unknown and text .. ' ?' or text) -- @rule newer-layout-kept
  end

  if seen ~= text then
    local stands, unknown = string.gsub(seen, ' %?$', '')
    here.pause_unknown = unknown == 1
    if stands ~= text then
      if epoch_of(stands) >= epoch_of(text) then return fail('LAYOUT', stands) end -- @rule older-layout-refused
      if now_us then raise(stands) end -- @rule readers-write-nothing
    end
  end

  function here.pause_is_told()
    if here.pause_unknown then redis.call('SET', layout, text) end
    here.pause_unknown = false
  end

  -- Whether a batch was taken out of here a second ago or more, and has not arrived: who carried it may have died. So it is
  -- of one from before the clock has stepped back.
  function here.is_stranded()
    if not string.find(text, '^%d+ %d+ %d+$') then return false end
    return math.abs(now_us - (tonumber(redis.call('HGET', move, 'note')) or now_us)) >= 1000000 -- @rule old-notes-are-told
  end

  -- An error reply if one of these timers was taken out of here and has not arrived yet.
  function here.on_its_way(ids)
    if not here.leaving or redis.call('HEXISTS', move, 'note') == 0 then return end
    for _, id in ipairs(ids) do
      if redis.call('HEXISTS', move, 't' .. id) == 1 then return fail('LEAVING', id) end -- @rule noted-timers-wait
    end
  end
end
