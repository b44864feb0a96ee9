"""One-line breaks of what sweeps and loads rely on: the ledger, marks, the fence of retirements, turns."""

from __future__ import annotations

from tests.worlds.scripts.rules import Break

THE_LOAD = {
    "ledger not read": Break("bulk/guarded_load", "ledger-read", "if false then"),
    "ledger not written": Break(
        "bulk/guarded_load",
        "ledger-written",
        "redis.call('HSET', marks, 'x',",
        old="redis.call('HSET', marks, entry,",
    ),
    "ledger of all plans": Break(
        "bulk/guarded_load",
        "ledger-by-plan",
        "local entry = 'b:' ..",
        old="local entry = 'b' .. plan .. ':' ..",
    ),
    "what lives is overwritten": Break("bulk/guarded_load", "living-left-alone", "if false then"),
    "marks not read": Break("bulk/guarded_load", "marks-read", "elseif false then"),
    "touches not read": Break(
        "bulk/guarded_load", "touches-and-versions-compared", "return", old="return touched[2 * n - 1] or"
    ),
    "versions not compared": Break(
        "bulk/guarded_load",
        "touches-and-versions-compared",
        "",
        old="or touched[2 * n] and version < touched[2 * n]",
    ),
    "own version held off": Break(
        "bulk/guarded_load",
        "touches-and-versions-compared",
        "version <= touched[2 * n]",
        old="version < touched[2 * n]",
    ),
    "one version for all rows": Break(
        "bulk/guarded_load",
        "version-by-row",
        "string.sub(versions, 1, 19)",
        old="string.sub(versions, 19 * n - 18, 19 * n)",
    ),
    "epoch not compared": Break(
        "bulk/guarded_load", "marks-are-the-plans", "if plan", old="if epoch ~= open_epoch or plan"
    ),
    "plan not compared": Break("bulk/guarded_load", "marks-are-the-plans", "", old="or plan ~= open_plan"),
    "load begins with a delete": Break("lib/bulk_columns", "bulk-begins-with-zadd", "@2\n@1", lines=2),
    "record of a gone timer kept by the load": Break("lib/bulk_columns", "bulk-clears-records"),
    "what lives loses its record": Break("lib/bulk_columns", "record-cleared-by-row", "ids[m]", old="ids[n]"),
    "envelopes of other rows": Break(
        "lib/bulk_columns", "envelope-by-row", "envelopes[k / 2 + 1]", old="envelopes[n]"
    ),
    "expiring scores of other rows": Break(
        "lib/bulk_columns", "expiring-score-by-row", "scores[1] = number(r", old="scores[n] = number(r"
    ),
    "expiries of other rows": Break(
        "lib/bulk_columns",
        "expiry-by-row",
        "expiring(tonumber(scores[n]), expires[2])",
        old="expiring(tonumber(scores[n]), expires[n])",
    ),
    "scores of other rows": Break(
        "lib/bulk_columns", "score-by-row", "scores[k / 2 + 1], id", old="scores[n], id"
    ),
    "no hint from the load": Break("lib/bulk_columns", "bulk-hints"),
    "loaded timers never expire": Break("lib/bulk_columns", "expiring-get-records", "if false then"),
    "loads not in the journal": Break(
        "lib/bulk_columns", "bulk-addition-noted", "note(EXTENDED,", old="note(SCHEDULED,"
    ),
}
THE_MARKS = {
    "ack leaves no mark": Break("lib/timeline", "end-marked"),
    "death in a claim leaves no mark": Break("lib/timeline", "end-marked"),
    "cancel leaves no mark": Break("timeline/cancel", "cancel-marked", "--", old="mark(gone) --"),
    "cancel marks only what it finds": Break(
        "timeline/cancel",
        "cancel-marks-absent-too",
        "if there then gone[#gone + 1] = id end -- also",
        old="gone[#gone + 1] = id -- also",
    ),
    "refused cancels are marked": Break(
        "timeline/cancel", "refused-cancels-unmarked", "if #gone == 0 then mark(ids) end\n@1"
    ),
    "marks come before the removal": Break("timeline/settle", "burial-before-removal", "mark(ended)\n@1"),
    "marks without a plan": Break(
        "lib/prelude",
        "marks-only-under-a-plan",
        "if not marks or #ids == 0 or",
        old="if not marking or #ids == 0 or",
    ),
    "marks of another type": Break(
        "lib/prelude",
        "marks-are-a-hash",
        "then kind, marking = found, found == 'hash' end",
        old="then marking = found == 'hash' end",
    ),
    "epoch made anew with marks there": Break(
        "bulk/marks",
        "epoch-kept",
        "new_epoch or redis.call('HGET', marks, 'epoch')",
        old="redis.call('HGET', marks, 'epoch') or new_epoch",
    ),
    "marks taken from a live driver": Break(
        "bulk/marks", "driver-held-until", "if false and now_us", old="if by and by ~= driver and now_us"
    ),
    "marks never taken over": Break(
        "bulk/marks", "driver-held-until", "then", old="and now_us < tonumber(till) then"
    ),
    "kept by whoever comes": Break(
        "bulk/marks", "keep-by-owner", "if false then", old="if verb == 'keep' and not mine then"
    ),
    "closed by whoever comes": Break(
        "bulk/marks", "close-by-owner", "if false then return answer", old="if not mine then return answer"
    ),
    "marks of another store": Break(
        "bulk/marks", "one-store-at-a-time", "and false then", old="and store and store ~= asking_store then"
    ),
    "taken over without a word": Break(
        "bulk/marks", "takeover-asked-for", "if false then", old="if not force then"
    ),
    "taken over with what was noted": Break(
        "bulk/marks", "takeover-drops-marks", "-- with its", old="redis.call('UNLINK', marks) -- with its"
    ),
    "the store not written": Break(
        "bulk/marks",
        "store-written",
        "redis.call('HSET', marks,",
        old="redis.call('HSET', marks, 'store', asking_store,",
    ),
    "abandoned marks stay": Break(
        "bulk/marks", "abandoned-marks-go", "if marking and are_abandoned() then end"
    ),
    "abandoned marks are written": Break(
        "lib/prelude", "marks-only-under-a-plan", "then return end", old="or are_abandoned() then return end"
    ),
    "a retirement in abandoned marks": Break(
        "bulk/retire", "retirement-marks-unless-abandoned", "marking", old="marking and not are_abandoned()"
    ),
    "loaded by abandoned marks": Break(
        "bulk/guarded_load", "marks-are-the-plans", "plan then", old="plan or are_abandoned() then"
    ),
    "marks are kept for nothing": Break(
        "bulk/marks", "marks-kept-until", "now_us", old="now_us + kept * 1000"
    ),
}
THE_RETIREMENT = {
    "retired by whoever comes": Break(
        "bulk/retire",
        "retirement-fenced",
        "if false then",
        old="if redis.call('HGET', retiring, version) ~= token then",
    ),
    "retirement leaves no version": Break(
        "bulk/retire", "version-written", "'fx', version", old="names[n], version"
    ),
    "an older retirement wins": Break("bulk/retire", "newest-version-wins", "if true then"),
    "a retirement keeps touches": Break(
        "bulk/retire", "touches-forgotten", "if false then", old="if #forgotten > 0 then"
    ),
    "retirement leaves the lease": Break("bulk/retire", "retirement-clears-record"),
    "retirement leaves the payload": Break("bulk/retire", "retirement-clears-payload"),
    "retirements not in the journal": Break("bulk/retire", "retirement-noted", "if false then"),
}
THE_PACE = {
    "turns at the same time": Break(
        "bulk/pace", "turns-behind-others", "local ends = now_us +", old="local ends = till +"
    ),
    "a turn is not kept": Break(
        "bulk/pace", "turn-kept", "redis.call('SET', pace .. ':x',", old="redis.call('SET', pace,"
    ),
    "time of a rest is caught up on": Break(
        "bulk/pace", "turns-from-now", "if till == 0 or till >", old="if till < now_us or till >"
    ),
    "held up by a clock of old": Break(
        "bulk/pace", "turns-from-now", "then", old="or till > now_us + LONGEST then"
    ),
    "turns stay for ever": Break(
        "bulk/pace", "turn-kept", "", old=", 'PX', string.format('%.0f', math.ceil((ends - now_us) / 1000))"
    ),
}
THE_COUNTS = {
    "taken from what nobody has counted": Break(
        "bulk/cold", "only-what-was-counted-is-taken", "if false then"
    ),
    "an older plan's word stands": Break("bulk/cold", "later-plans-stand"),
    "counts stay for good": Break("bulk/cold", "cold-counts-end"),
}
OF_LOAD = {**THE_LOAD, **THE_MARKS, **THE_RETIREMENT, **THE_PACE, **THE_COUNTS}
