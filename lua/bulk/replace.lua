-- bulk/replace.lua: store one batch of timers, each in the place of one that lives.
--
-- KEYS    timeline zset, payloads hash, leases hash
-- Uses    bulk_columns
-- ARGV    until us                  after which the call is refused; see lib/given_up.lua
--         channel text              of wake hints
--         expiring_at text          '' if none expires; else of each timer the score at which it does, or nothing, and ';'
--         packed_scores msgpack     an array of one text for each timer, as the next two are; each timer once
--         packed_ids msgpack
--         packed_envelopes msgpack
-- Returns how many timers it has stored
--         error WRONGKEYTYPE; Redis' own error for an invalid score, with nothing written
--         error OOM from Redis, with nothing written, since ZADD, or the journal's XADD, is the first write
-- Race    a timer that is replaced while a relay delivers it: its record goes, so the relay's token is worth nothing.

local bad = wrong_type()
if bad then return bad end

read_columns()
look(false)
for n = 1, #ids do
  chosen[n] = n -- @rule whole-batch-replaces
end
add_chosen()
return answer(#chosen)
