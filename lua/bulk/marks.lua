-- bulk/marks.lua: open a topic's marks for a sweep's plan, keep them, close them.
--
-- KEYS    leases hash, marks hash
--         there only while a plan is open:
--           'epoch'                  a new one whenever there were no marks
--           'plan', 'driver', 'until' whose they are, and until when nobody else may take them, microseconds
--           'kept'                   when they are abandoned unless somebody keeps them, microseconds
--           'store', 'place'         which cold store the plan is of: its name, and where it lies, for people
--           't' and a timer_id       the timer was delivered, cancelled or died
--           'f' and a timer_id       rows of the cold store before this version are over
--           'b', plan, ':', batch    the ledger: what a batch that was loaded came to
--           'any'                    there is a 't' or an 'f'
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         verb text                 'open' | 'keep' | 'close': 'keep' takes the arguments to kept, 'close' those to driver
--         plan text
--         driver text
--         own us                    for which it is the driver's own
--         kept ms                   after which they are abandoned
--         new_epoch text            if there are no marks
--         asking_store text         its name
--         asking_place text         where it lies
--         force flag                to end another store's plan that nobody keeps
-- Returns { 'OPEN', epoch } | { 'BUSY', microseconds for which it is another's, its plan, its place }
--         { 'TAKEN', plan, place }   another store's plan is open, and nobody keeps it
--         { 'OK' } | { 'LOST' }      they are not, or no more, this plan's and driver's
--         error WRONGKEYTYPE
-- Race    a move that begins at the same time: see layout/change.lua.
-- Race    a driver that comes to itself after another went on in its place: it can't close what that one needs.
-- Race    sweeps of one topic over two stores: closed with the one's plan, the marks would be missing in the other's.
--         So one store has them, until its plan is done.

local bad = wrong_type()
if bad then return bad end

if marking and are_abandoned() then redis.call('UNLINK', marks) end -- @rule abandoned-marks-go
local held, by, till, store, place = unpack(redis.call('HMGET', marks, 'plan', 'driver', 'until', 'store', 'place'))
local mine = held == plan and by == driver
if verb == 'close' then
  if not mine then return answer({ 'LOST' }) end -- @rule close-by-owner
  redis.call('UNLINK', marks)
  return answer({ 'OK' })
end
if verb == 'keep' and not mine then return answer({ 'LOST' }) end -- @rule keep-by-owner
if by and by ~= driver and now_us < tonumber(till) then -- @rule driver-held-until
  return answer({ 'BUSY', tonumber(till) - now_us, held, place or '' })
end
if verb == 'open' and store and store ~= asking_store then -- @rule one-store-at-a-time
  if not force then return answer({ 'TAKEN', held, place }) end -- @rule takeover-asked-for
  -- @rule takeover-drops-marks
  redis.call('UNLINK', marks) -- with its epoch: what that plan has read is old from now on
end

local epoch = redis.call('HGET', marks, 'epoch') or new_epoch -- @rule epoch-kept
-- stylua: ignore
redis.call('HSET', marks, 'epoch', epoch, 'plan', plan, 'driver', driver,
  'until', string.format('%.0f', now_us + own),
  'kept', string.format('%.0f', now_us + kept * 1000)) -- @rule marks-kept-until
if verb == 'keep' then return answer({ 'OK' }) end
redis.call('HSET', marks, 'store', asking_store, 'place', asking_place) -- @rule store-written
return answer({ 'OPEN', epoch })
