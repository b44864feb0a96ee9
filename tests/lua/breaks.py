"""One-line breaks of the scripts, at least one for each promise and each rule of the fence."""

from __future__ import annotations

from tests.lua.breaks_apply import OF_APPLY
from tests.lua.breaks_clock import OF_CLOCK
from tests.lua.breaks_failure import THE_DEAD, THE_PEOPLE, THE_TERMS
from tests.lua.breaks_insert import OF_INSERT
from tests.lua.breaks_intents import OF_INTENTS
from tests.lua.breaks_journal import THE_JOURNAL
from tests.lua.breaks_layout import OF_LAYOUT
from tests.lua.breaks_load import OF_LOAD
from tests.lua.breaks_losses import OF_LOSSES
from tests.lua.breaks_move import OF_MOVE
from tests.lua.breaks_record import OF_RECORD
from tests.lua.breaks_recur import OF_RECUR
from tests.worlds.scripts.rules import Break

THE_FENCE = {
    "nonce not compared": Break("lib/prelude", "nonce-compared"),
    "state not compared": Break("lib/prelude", "state-compared"),
    "score not compared": Break("lib/prelude", "score-compared"),
    "a foreign score taken for ours": Break("lib/prelude", "record-explains-score", "if r then return r end"),
    "record kept on schedule": Break("timeline/schedule", "schedule-clears-record"),
    "record kept on cancel": Break("timeline/cancel", "cancel-clears-record"),
    "our scores on the publishers' grid": Break("lib/prelude", "own-scores-off-grid", "local OFF_GRID = 0"),
    "renewal changes the nonce": Break(
        "lib/life", "renewal-keeps-nonce", "r.score, r.nonce = own_score(until_us, r.due), NO_NONCE"
    ),
    "end of a lease keeps the nonce": Break(
        "lib/outcomes", "return-ends-lease", "r.state, r.received = PENDING, 0"
    ),
    "end of a lease keeps the state": Break("lib/outcomes", "return-ends-lease", "r.received = 0"),
    "claim keeps the nonce": Break(
        "timeline/claim",
        "claim-sets-lease",
        "r.state, r.score, r.claims = LEASED, deadline, r.claims + 1\n"
        "if r.nonce == NO_NONCE then r.nonce = nonce end",
    ),
    "parking keeps the nonce": Break(
        "lib/due_timers", "parking-ends-lease", "r.score = own_score(now_us + grace, r.due)"
    ),
    "foreign lease keeps the token": Break(
        "lib/prelude", "foreign-lease-ends-ours", "r.received, r.approximate, r.score = 0, 1, score"
    ),
    "duplicates not refused": Break("timeline/settle", "settle-once-a-timer"),
    "renewed twice in a call": Break("timeline/extend", "extend-once-a-timer"),
    "stale record of a gone timer kept": Break(
        "timeline/settle",
        "gone-clears-record",
        "-- a record",
        old="forgotten[#forgotten + 1] = id -- a record",
    ),
}

THE_TIME = {
    "late calls not refused": Break("lib/given_up", "late-call-refused"),
    "late timers not told": Break("lib/conditions", "late-timers-told"),
    "a late timer stored": Break("timeline/schedule", "late-timer-not-stored"),
    "all timers refused with the first": Break(
        "timeline/schedule", "late-timer-not-stored", "ends[1]", old="ends[n]"
    ),
    "a late timer cancelled": Break("timeline/cancel", "late-timer-not-cancelled"),
    "all cancels refused with the first": Break(
        "timeline/cancel", "late-timer-not-cancelled", "ends[1]", old="ends[n]"
    ),
    "claim ahead of time": Break(
        "timeline/claim",
        "claim-of-due-by-limit",
        "'-inf', number((now_us + 1) / 1e6)",
        old="'-inf', last",
    ),
    "return before the due time": Break(
        "lib/prelude",
        "never-before-due",
        "return math.floor(us) / 1e6 + OFF_GRID",
        old="return math.max(math.floor(us), math.ceil(due * 1e6)) / 1e6 + OFF_GRID",
    ),
    "nack before the due time": Break(
        "timeline/settle", "return-never-early", "r.score = own_score(r.at_us, verb == 'nack' and 0 or r.due)"
    ),
    "release before the due time": Break(
        "timeline/settle",
        "return-never-early",
        "r.score = own_score(r.at_us, verb == 'release' and 0 or r.due)",
    ),
    "due time lost on claim": Break("lib/life", "receipt-ends-with-lease", "r.received, r.due = 0, r.score"),
    "due time lost after a foreign lease": Break(
        "lib/prelude",
        "foreign-lease-ends-ours",
        "r.approximate, r.due, r.nonce = PENDING",
        old="r.approximate, r.score, r.nonce = PENDING",
    ),
    "a republish into the past overlooked": Break(
        "lib/prelude", "publishers-give-new-intents", "if not r or whole_us(score) then"
    ),
    "a republish on the grid overlooked": Break(
        "lib/prelude", "publishers-give-new-intents", "if not r or score < r.due then"
    ),
    "numbers with 14 digits": Break(
        "lib/prelude", "numbers-have-17-digits", "return tostring(x)", old="return string.format('%.17g', x)"
    ),
    "a back-off with 14 digits": Break(
        "lib/timeline", "scores-kept-as-numbers", "tostring(score), id", old="score, id"
    ),
    "records among gaps": Break(
        "lib/timeline", "records-without-gaps", "kept[n + 1], kept[n + 2]", old="kept[m + 1], kept[m + 2]"
    ),
    "claim by a stale order": Break(
        "timeline/claim",
        "claim-of-due-by-limit",
        "'WITHSCORES', 'LIMIT', 1, limit",
        old="'WITHSCORES', 'LIMIT', 0, limit",
    ),
}

THE_COUNT = {
    "release counts without a receipt": Break(
        "lib/outcomes", "release-counts-receipt", "local received = true"
    ),
    "release overlooks the recorded receipt": Break(
        "lib/outcomes", "release-counts-receipt", "local received = string.find(flags, 'r', 1, true)"
    ),
    "release overlooks the relay's word": Break(
        "lib/outcomes", "release-counts-receipt", "local received = r.received == 1"
    ),
    "lapse does not count": Break("lib/life", "lapse-counts-receipt"),
    "lapse always counts": Break("lib/life", "lapse-counts-receipt", "r.attempts = r.attempts + 1"),
    "nack does not count": Break("lib/outcomes", "nack-counts"),
    "receipt not recorded": Break("lib/life", "receipt-recorded"),
    "receipt outlives its lease": Break("lib/life", "receipt-ends-with-lease"),
    "occurrence not kept": Break("timeline/claim", "occurrence-kept", "r.occurrence = nonce"),
    "attempts lost on a foreign lease": Break(
        "lib/prelude", "foreign-lease-counts-receipt", "r.attempts = 0"
    ),
    "attempts kept by a republish": Break(
        "lib/prelude",
        "intent-counts-from-none",
        "new.approximate, new.attempts = whole_us(score) and 0 or 1, r and r.attempts or 0",
    ),
}

THE_KEYS = {
    "parked timer removed at once": Break(
        "lib/life", "parked-once", "if not has_payload then return 'ORPHANED' end"
    ),
    "parked timer never removed": Break("lib/life", "parked-once", "if false then return 'ORPHANED' end"),
    "ack leaves the payload": Break("lib/timeline", "end-clears-payload"),
    "ack leaves the record": Break("lib/timeline", "end-clears-record"),
    "cancel leaves the payload": Break("timeline/cancel", "cancel-clears-payload"),
    "claim begins with an addition": Break("lib/timeline", "writes-begin-with-a-delete", lines=2),
    "settle begins with an addition": Break("lib/timeline", "writes-begin-with-a-delete", lines=2),
    "extend begins with an addition": Break("lib/timeline", "writes-begin-with-a-delete", lines=2),
    "schedule begins with a delete": Break(
        "timeline/schedule", "schedule-begins-with-zadd", "@2\n@1", lines=2
    ),
    "types not probed": Break("lib/prelude", "types-probed", "if false then"),
    "no hint from schedule": Break("timeline/schedule", "schedule-hints"),
    "no hint from settle": Break("timeline/settle", "settle-hints"),
    "a hint that is refused ends the script": Break(
        "lib/prelude", "refused-hint-stands", "redis.call('PUBLISH'", old="redis.pcall('PUBLISH'"
    ),
    "a hint that is refused goes untold": Break(
        "lib/prelude", "refused-hint-told", "sent =", old="unheard = type(sent) == 'table' and"
    ),
    "a journal hides that a hint was refused": Break(
        "lib/journal", "journal-passes-refused-hint", "reply", old="reply_of(reply)"
    ),
    "a hint each time": Break(
        "lib/prelude",
        "hint-if-earlier",
        "(before == '' or true)",
        old="(before == '' or tonumber(after) < tonumber(before))",
    ),
    "scores compared as strings": Break(
        "lib/prelude", "hint-if-earlier", "after < before", old="tonumber(after) < tonumber(before)"
    ),
    "limit ignored": Break(
        "timeline/claim", "claim-of-due-by-limit", "'LIMIT', 0, 500", old="'LIMIT', 0, limit"
    ),
    "byte bound ignored": Break("timeline/claim", "claim-bounded-by-bytes"),
    "a big timer never taken": Break(
        "timeline/claim", "claim-bounded-by-bytes", "if bytes >", old="if taken > 0 and bytes >"
    ),
    "payloads read without measure": Break("timeline/claim", "payloads-read-by-room", "some = #ids"),
    "the first payload not read alone": Break(
        "timeline/claim",
        "first-payload-alone",
        "taken, bytes, largest, some = 0, 0, 1, at_once",
        old="taken, bytes, largest, some = 0, 0, 1, 1",
    ),
    "large ones read in vain behind a small one": Break(
        "timeline/claim", "payloads-read-by-room", "some = as_many_as_fit(enough - bytes, largest, 16)"
    ),
    "a new timer's due time lost": Break(
        "timeline/claim",
        "new-timer-keeps-due-time",
        "before_due .. struct.pack('<d', deadline)",
        old="before_due .. struct.pack('<d', score)",
    ),
    "a foreign lease taken for a new timer": Break(
        "timeline/claim", "new-timers-by-score", "and score >= 0", old="and score >= 0 and whole_us(score)"
    ),
    "a new timer due before 1970": Break(
        "timeline/claim",
        "new-timers-by-score",
        "and whole_us(score)",
        old="and score >= 0 and whole_us(score)",
    ),
    "another claim's found": Break(
        "timeline/claimed", "found-under-the-nonce", "record", old="holds(scores[n], record, nonce)"
    ),
    "found though it has run out": Break(
        "timeline/claimed", "found-under-the-nonce", "if", old="if scores[n] * 1e6 > now_us and"
    ),
    "found without payload": Break(
        "timeline/claimed", "found-with-payload", "envelope = envelope or '' do", old="if envelope then"
    ),
    "found beyond the bytes": Break("timeline/claimed", "found-bounded-by-bytes"),
    "a big one never found": Break(
        "timeline/claimed",
        "found-bounded-by-bytes",
        "if bytes > max_bytes then",
        old="if bytes > max_bytes and m > 0 then",
    ),
    "a claim cut in two": Break("timeline/claimed", "one-score-one-part", "if false then", lines=1),
    "delay past 9999 taken": Break(
        "timeline/schedule", "delay-before-9999", "if false then", old="if score > LATEST then"
    ),
    "due times told by the second": Break(
        "timeline/schedule", "unknown-dues-told", "= math.floor(score) end", old="= score end"
    ),
    "due times told that are known": Break(
        "lib/prelude", "exact-dues-known", "value, true", old="value, value >= EXACT"
    ),
    "pages by score alone": Break("timeline/list", "pages-by-score-and-id", "first = last", lines=5),
    "pages of any size": Break("timeline/list", "pages-bounded-by-bytes", "if false then"),
    "pages skip what moved up": Break("timeline/list", "pages-by-bytes", "return #a < #b"),
}

THE_VERSIONS = {
    "records of another version": Break(
        "lib/prelude", "records-have-our-version", "local VERSION, RECORD_SIZE = 3, 69"
    ),
    "a newer record read as none": Break("lib/prelude", "newer-records-stand", "if false then"),
    "text taken for a newer record": Break("lib/prelude", "newer-records-stand", "if version > VERSION then"),
    "a newer record taken over": Break("lib/life", "newer-records-left-alone"),
}

OF_FAILURE = {**THE_DEAD, **THE_TERMS, **THE_PEOPLE}
BREAKS = {
    **THE_FENCE,
    **THE_TIME,
    **THE_COUNT,
    **THE_KEYS,
    **THE_VERSIONS,
    **OF_FAILURE,
    **THE_JOURNAL,
    **OF_LOAD,
    **OF_INSERT,
    **OF_APPLY,
    **OF_INTENTS,
    **OF_LAYOUT,
    **OF_LOSSES,
    **OF_MOVE,
    **OF_RECUR,
    **OF_RECORD,
    **OF_CLOCK,
}
