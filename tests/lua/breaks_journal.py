"""One-line breaks of what the scripts write into the journal."""

from __future__ import annotations

from tests.lua.bench import Break

THE_JOURNAL = {
    "numbers begin anew": Break("journal", "local last = before + #changes", "local last = #changes"),
    "numbers of batches": Break("journal", "local last = before + #changes", "local last = before + 1"),
    "the journal begins with an addition": Break(
        "journal", "if #changes > 0 then redis.call('XDEL', JOURNAL, '0-0') end", ""
    ),
    "schedule appends behind a delete": Break(
        "timeline/schedule", "if JOURNAL then append(now_us) end", "if JOURNAL then append_always(now_us) end"
    ),
    "schedule without a record": Break("timeline/schedule", "if JOURNAL then append(now_us) end", ""),
    "claim without a record": Break("timeline/claim", "    append_always(now_us, ARGV[3], deadline)\n", "\n"),
    "settle without a record": Break("timeline/settle", "  append_always(now_us)\n", "\n"),
    "extend without a record": Break("timeline/extend", "if JOURNAL then append_always(now_us) end", ""),
    "redrive without a record": Break("people/redrive", "if JOURNAL then append_always(now_us) end", ""),
    "run without a record": Break("timeline/run", "if JOURNAL then append_always(now_us) end", ""),
    "cancel without a record": Break("timeline/cancel", "if JOURNAL then append_always(time_us()) end", ""),
    "repair without a record": Break("timeline/repair", "  append_always(time_us())\n", "\n"),
    "purge without a record": Break("people/purge", "  append_always(time_us())\n", "\n"),
    "dead letters before it is known that they can be recorded": Break(
        "journal", "  if #dead > 0 then may_append() end\n", "\n"
    ),
    "a trim before it is known that it can be recorded": Break(
        "people/trim", "if JOURNAL then may_append() end", ""
    ),
    "a resume before it is known that it can be recorded": Break(
        "people/pause", "  if JOURNAL then may_append() end\n", "\n"
    ),
    "trim without a record": Break("people/trim", "  append(time_us())\n", "\n"),
    "pause without a record": Break("people/pause", "  append_always(now_us)\n", "\n"),
    "an empty entry": Break("journal", "  if #changes == 0 then return end\n", "\n"),
    "the journal is never trimmed": Break("journal", "last > KEEP and too_many(last) or {}", "{}"),
    "the journal is trimmed too early": Break(
        "journal", "newest > last - KEEP then break end", "first > last - KEEP then break end"
    ),
    "the journal is trimmed at once": Break("journal", "while trimmed < most do", "while true do"),
    "trimmed entries are counted": Break(
        "journal", "trimmed = trimmed + newest - first + 1", "trimmed = trimmed + 1"
    ),
    "an ack leaves no record": Break("timeline/settle", "if JOURNAL then note_end(id, '') end", ""),
    "the stale leave no record": Break(
        "timeline/settle",
        "if JOURNAL then note_refusal(id, nonce, BY_VERB[verb], understand",
        "if false then note_refusal(id, nonce, BY_VERB[verb], understand",
    ),
    "a refusal names no lease": Break("journal", "nonce_is(nonce) .. refused_is(kind)", "refused_is(kind)"),
    "an adoption is not told": Break("prelude", "    new.adopted = r and INTENT\n", "\n"),
    "a foreign lease is not told": Break("prelude", "  r.adopted = LEASE\n", "\n"),
    "what was taken is not told": Break("journal", "  if r then note(TAKEN,", "  if false then note(TAKEN,"),
    "a lapse is not told": Break(
        "timeline/claim",
        "standing_is(r) .. received_is(received) .. adopted_is(r.adopted))",
        "standing_is(r) .. adopted_is(r.adopted))",
    ),
    "each claim as the first": Break(
        "timeline/claim",
        "local before = r.occurrence ~= r.nonce and r.occurrence or NO_NONCE",
        "local before = NO_NONCE",
    ),
    "the due time before is not told": Break(
        "timeline/schedule", "previous_due_is(old.due)", "previous_due_is(due)"
    ),
    "a lease voided is not told": Break("timeline/schedule", "nonce_is(old.nonce)", "nonce_is(NO_NONCE)"),
    "a cancelled lease is not told": Break(
        "timeline/cancel", "CANCELLED, id, nonce_is(r.nonce)", "CANCELLED, id, ''"
    ),
    "a receipt as a renewal": Break(
        "timeline/extend", "note(received and RECEIVED or EXTENDED, id,", "note(EXTENDED, id,"
    ),
    "the end of a renewal is not told": Break("timeline/extend", "score_is(r.score)", "score_is(0)"),
    "the letter is not told": Break("journal", "dead_id_is(names[n])", "''"),
    "the expired as dead": Break(
        "journal", "      reason == 'expired' and EXPIRED or DEAD,\n", "      DEAD,\n"
    ),
    "a lost payload is not told": Break(
        "timeline/claim", "if JOURNAL then note(ORPHANED, id, due_is(r.due)) end", ""
    ),
}
