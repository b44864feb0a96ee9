"""One-line breaks of what the scripts write into the journal."""

from __future__ import annotations

from tests.worlds.scripts.rules import Break

THE_JOURNAL = {
    "numbers begin anew": Break("lib/journal", "changes-numbered-on", "local last = #changes"),
    "numbers of batches": Break("lib/journal", "changes-numbered-on", "local last = before + 1"),
    "the journal begins with an addition": Break("lib/journal", "entry-behind-a-delete"),
    "schedule appends behind a delete": Break(
        "timeline/schedule", "schedule-noted", "if JOURNAL then append_always(now_us) end"
    ),
    "schedule without a record": Break("timeline/schedule", "schedule-noted"),
    "claim without a record": Break("lib/timeline", "noted-before-it-is-written"),
    "settle without a record": Break("lib/timeline", "noted-before-it-is-written"),
    "extend without a record": Break("lib/timeline", "noted-before-it-is-written"),
    "redrive without a record": Break("people/redrive", "redrive-noted"),
    "run without a record": Break("lib/timeline", "noted-before-it-is-written"),
    "cancel without a record": Break("timeline/cancel", "cancel-noted"),
    "repair without a record": Break("timeline/repair", "repair-noted"),
    "purge without a record": Break("people/purge", "purge-noted"),
    "dead letters before it is known that they can be recorded": Break(
        "lib/letters", "append-asked-before-burial"
    ),
    "a trim before it is known that it can be recorded": Break("people/trim", "append-asked-before-trim"),
    "a resume before it is known that it can be recorded": Break(
        "people/pause", "append-asked-before-resume"
    ),
    "trim without a record": Break("people/trim", "trim-noted"),
    "pause without a record": Break("people/pause", "pause-noted"),
    "an empty entry": Break("lib/journal", "no-empty-entry"),
    "the journal is never trimmed": Break(
        "lib/journal", "journal-trimmed", "{}", old="last > KEEP and too_many(last) or {}"
    ),
    "the journal is trimmed too early": Break(
        "lib/journal",
        "trim-spares-kept",
        "first > last - KEEP then break end",
        old="newest > last - KEEP then break end",
    ),
    "the journal is trimmed at once": Break("lib/journal", "trim-bounded", "while true do"),
    "trimmed entries are counted": Break("lib/journal", "trimmed-counts-changes", "trimmed = trimmed + 1"),
    "an ack leaves no record": Break("timeline/settle", "ack-noted"),
    "the stale leave no record": Break(
        "timeline/settle",
        "stale-noted",
        "if false then note_refusal(id, nonce, BY_VERB[verb], understand",
        old="if JOURNAL then note_refusal(id, nonce, BY_VERB[verb], understand",
    ),
    "a refusal names no lease": Break(
        "lib/journal", "refusal-names-lease", "refused_is(kind)", old="nonce_is(nonce) .. refused_is(kind)"
    ),
    "an adoption is not told": Break("lib/prelude", "adoption-told"),
    "a foreign lease is not told": Break("lib/prelude", "foreign-lease-told"),
    "what was taken is not told": Break(
        "lib/journal", "taken-noted", "if false then note(TAKEN,", old="if r then note(TAKEN,"
    ),
    "a lapse is not told": Break(
        "timeline/claim",
        "lapse-told",
        "standing_is(r) .. adopted_is(r.adopted))",
        old="standing_is(r) .. received_is(received) .. adopted_is(r.adopted))",
    ),
    "errors at length": Break(
        "lib/journal", "error-noted-in-short", "text", old="text and string.sub(text, 1, MOST_OF_ERROR)"
    ),
    "a failed attempt without its error": Break("timeline/settle", "nack-tells-error"),
    "each claim as the first": Break("timeline/claim", "first-claim-told", "local before = NO_NONCE"),
    "the due time before is not told": Break(
        "timeline/schedule", "replaced-told", "previous_due_is(due)", old="previous_due_is(old.due)"
    ),
    "a lease voided is not told": Break(
        "timeline/schedule", "replaced-told", "nonce_is(NO_NONCE)", old="nonce_is(old.nonce)"
    ),
    "a cancelled lease is not told": Break(
        "timeline/cancel", "cancel-names-lease", "CANCELLED, id, ''", old="CANCELLED, id, nonce_is(r.nonce)"
    ),
    "a receipt as a renewal": Break(
        "timeline/extend",
        "receipt-told-from-renewal",
        "note(EXTENDED, id,",
        old="note(received and RECEIVED or EXTENDED, id,",
    ),
    "the end of a renewal is not told": Break(
        "timeline/extend", "receipt-told-from-renewal", "score_is(0)", old="score_is(r.score)"
    ),
    "the letter is not told": Break("lib/letters", "letter-noted", "''", old="dead_id_is(name)"),
    "the expired as dead": Break("lib/letters", "expired-noted-as-expired", "local kind = DEAD"),
    "a lost payload is not told": Break("lib/due_timers", "orphan-noted"),
}
