"""One-line breaks of what sweeps and loads rely on: the ledger, marks, the fence of retirements, turns."""

from __future__ import annotations

from tests.lua.bench import Break

ADDED = "  redis.call('ZADD', KEYS[1], unpack(timers))\n"
CLEARED = "  if held then redis.call('HDEL', KEYS[3], unpack(added)) end\n"

THE_LOAD = {
    "ledger not read": Break("bulk/guarded_load", "if done then\n", "if false then\n"),
    "ledger not written": Break(
        "bulk/guarded_load", "redis.call('HSET', MARKS, entry,", "redis.call('HSET', MARKS, 'x',"
    ),
    "ledger of all plans": Break(
        "bulk/guarded_load", "local entry = 'b' .. ARGV[3] .. ':' ..", "local entry = 'b:' .."
    ),
    "what lives is overwritten": Break("bulk/guarded_load", "  if found[n] then\n", "  if false then\n"),
    "marks not read": Break("bulk/guarded_load", "elseif marks and is_over(n) then", "elseif false then"),
    "touches not read": Break("bulk/guarded_load", "return marks[2 * n - 1] or", "return"),
    "versions not compared": Break("bulk/guarded_load", " or marks[2 * n] and version < marks[2 * n]", ""),
    "own version held off": Break("bulk/guarded_load", "version < marks[2 * n]", "version <= marks[2 * n]"),
    "one version for all rows": Break(
        "bulk/guarded_load", "string.sub(ARGV[5], 19 * n - 18, 19 * n)", "string.sub(ARGV[5], 1, 19)"
    ),
    "epoch not compared": Break("bulk/guarded_load", "if epoch ~= ARGV[2] or plan", "if plan"),
    "plan not compared": Break("bulk/guarded_load", " or plan ~= ARGV[3]", ""),
    "load begins with a delete": Break("bulk/guarded_load", ADDED + CLEARED, CLEARED + ADDED),
    "record of a gone timer kept by the load": Break("bulk/guarded_load", CLEARED, ""),
    "what lives loses its record": Break("bulk/guarded_load", "unpack(added)", "unpack(ids)"),
    "envelopes of other rows": Break("bulk/guarded_load", "ids[n], envelopes[n]", "ids[n], envelopes[m]"),
    "expiring scores of other rows": Break(
        "bulk/guarded_load", "scores[n] = number(r", "scores[1] = number(r"
    ),
    "expiries of other rows": Break(
        "bulk/guarded_load",
        "expiring(tonumber(scores[n]), expires[n])",
        "expiring(tonumber(scores[n]), expires[2])",
    ),
    "scores of other rows": Break(
        "bulk/guarded_load", "= scores[n], ids[n], ids[n]", "= scores[m], ids[n], ids[n]"
    ),
    "no hint from the load": Break("bulk/guarded_load", "hint(channel, before, head())", ""),
    "loaded timers never expire": Break(
        "bulk/guarded_load", "if (expires[n] or 0) > 0 then", "if false then"
    ),
    "loads not in the journal": Break(
        "bulk/guarded_load", "    note(SCHEDULED,", "    if false then end note(EXTENDED,"
    ),
}
THE_MARKS = {
    "ack leaves no mark": Break("timeline/settle", "  mark(ended)\n", ""),
    "death in a claim leaves no mark": Break("timeline/claim", "    mark(ended)\n", ""),
    "cancel leaves no mark": Break("timeline/cancel", "  mark(gone) --", "  --"),
    "cancel marks only what it finds": Break(
        "timeline/cancel", "gone[#gone + 1] = id -- also", "if there then gone[#gone + 1] = id end -- also"
    ),
    "refused cancels are marked": Break(
        "timeline/cancel", "if #gone > 0 then\n", "if #gone == 0 then mark(ids) end\nif #gone > 0 then\n"
    ),
    "marks come before the removal": Break(
        "timeline/settle",
        "local names = bury(dead, now_us)\n",
        "mark(ended)\nlocal names = bury(dead, now_us)\n",
    ),
    "marks without a plan": Break(
        "prelude", "if not marking or #ids == 0 or", "if not MARKS or #ids == 0 or"
    ),
    "marks of another type": Break(
        "prelude", "then marking = found == 'hash' end", "then kind, marking = found, found == 'hash' end"
    ),
    "epoch made anew with marks there": Break(
        "bulk/marks",
        "redis.call('HGET', MARKS, 'epoch') or ARGV[6]",
        "ARGV[6] or redis.call('HGET', MARKS, 'epoch')",
    ),
    "marks taken from a live driver": Break(
        "bulk/marks", "if by and by ~= driver and now_us", "if false and now_us"
    ),
    "marks never taken over": Break("bulk/marks", "and now_us < tonumber(till) then", "then"),
    "kept by whoever comes": Break("bulk/marks", "if verb == 'keep' and not mine then", "if false then"),
    "closed by whoever comes": Break(
        "bulk/marks", "  if not mine then return answer", "  if false then return answer"
    ),
    "marks of another store": Break("bulk/marks", "and store and store ~= ARGV[7] then", "and false then"),
    "taken over without a word": Break("bulk/marks", "if ARGV[9] == '' then", "if false then"),
    "taken over with what was noted": Break(
        "bulk/marks", "  redis.call('UNLINK', MARKS) -- with its", "  -- with its"
    ),
    "the store not written": Break(
        "bulk/marks", "redis.call('HSET', MARKS, 'store', ARGV[7],", "redis.call('HSET', MARKS,"
    ),
    "abandoned marks stay": Break("bulk/marks", "redis.call('UNLINK', MARKS) end\nlocal", "end\nlocal"),
    "abandoned marks are written": Break(
        "prelude", " or are_abandoned() then return end", " then return end"
    ),
    "a retirement in abandoned marks": Break("bulk/retire", "marking and not are_abandoned()", "marking"),
    "loaded by abandoned marks": Break(
        "bulk/guarded_load", "ARGV[3] or are_abandoned() then", "ARGV[3] then"
    ),
    "marks are kept for nothing": Break("bulk/marks", "now_us + tonumber(ARGV[5]) * 1000", "now_us"),
}
THE_RETIREMENT = {
    "retired by whoever comes": Break(
        "bulk/retire", "if redis.call('HGET', KEYS[4], ARGV[1]) ~= ARGV[2] then", "if false then"
    ),
    "retirement leaves no version": Break("bulk/retire", "names[n], ARGV[1]\n", "'fx', ARGV[1]\n"),
    "an older retirement wins": Break(
        "bulk/retire", "if not floors[n] or floors[n] <= ARGV[1] then", "if true then"
    ),
    "a retirement keeps touches": Break("bulk/retire", "if #forgotten > 0 then", "if false then"),
    "retirement leaves the lease": Break("bulk/retire", "redis.call('HDEL', KEYS[3], unpack(ids))\n", ""),
    "retirement leaves the payload": Break("bulk/retire", "redis.call('HDEL', KEYS[2], unpack(ids))\n", ""),
    "retirements not in the journal": Break("bulk/retire", "    if r then\n", "    if false then\n"),
}
THE_PACE = {
    "turns at the same time": Break("bulk/pace", "local ends = till +", "local ends = now_us +"),
    "a turn is not kept": Break(
        "bulk/pace", "redis.call('SET', KEYS[1],", "redis.call('SET', KEYS[1] .. ':x',"
    ),
    "time of a rest is caught up on": Break(
        "bulk/pace", "if till < now_us or till >", "if till == 0 or till >"
    ),
    "held up by a clock of old": Break("bulk/pace", " or till > now_us + LONGEST then", " then"),
    "turns stay for ever": Break(
        "bulk/pace", ", 'PX', string.format('%.0f', math.ceil((ends - now_us) / 1000))", ""
    ),
}
OF_LOAD = {**THE_LOAD, **THE_MARKS, **THE_RETIREMENT, **THE_PACE}
