"""Write the tables of docs/explanation/failure.md from relay/core/life.py, or check that they are up to date.

python tools/life_docs.py            write them
python tools/life_docs.py --check    exit 1, with a diff, if they have drifted

Every cell is what `relay.core.life.step` answers. The rows and their words stand here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from relay.core.life import Effect, Given, LifeEvent, LifeState, TimerLife, step  # noqa: E402
from relay.core.outcomes import Limits, Reason, Verdict  # noqa: E402
from relay.core.timers import Change  # noqa: E402
from tools.drift import write_or_check  # noqa: E402

PAGE = ROOT / "docs" / "explanation" / "failure.md"
NOW, DUE, LEASE_END = 1_000_000, 999_000, 1_030_000
POLICY, ASKED, NEW_DUE = 7, 11, 2_000_000
TOKEN, OCCURRENCE = b"1" * 16, b"0" * 16
WHEN = {
    NOW: "at once",
    NOW + POLICY: "as the policy says",
    NOW + ASKED: "after that",
    LEASE_END: "when its lease ends",
    NEW_DUE: "at the new due time, as a new occurrence",
}
"""What an instant of a next claim is called."""

PENDING = TimerLife(DUE, DUE, occurrence=OCCURRENCE, recorded=True)
LEASED = replace(PENDING, state=LifeState.LEASED, next_claim=LEASE_END, claims=1, nonce=TOKEN)
LIVES = {
    "PENDING": PENDING,
    "LEASED": LEASED,
    "PARKED": replace(PENDING, state=LifeState.PARKED),
    "DEAD": replace(PENDING, state=LifeState.DEAD, attempts=25),
    "no timer": None,
}


@dataclass(frozen=True)
class Failure:
    """A row of the table of retries; `if_received` says what a receipt means, where it decides."""

    said: str
    event: LifeEvent
    given: dict[str, Any] = field(default_factory=dict)
    if_received: str = ""

    def cells(self) -> tuple[str, str, str]:
        """What was said, when the timer is due again, and whether an attempt counts."""
        if not self.if_received:
            return self.said, *self.outcome(received=True)
        due, counts = self.outcome(received=True)
        due_else, counts_else = self.outcome(received=False)
        if due != due_else:
            due = f"{due} if {self.if_received}, else {due_else}"
        assert (counts, counts_else) == ("counts", "does not count")
        return self.said, due, f"counts if {self.if_received}"

    def outcome(self, *, received: bool) -> tuple[str, str]:
        """When the timer is due again, and whether that was an attempt."""
        life = replace(LEASED, received=received)
        given = Given(**{"now": NOW, "nonce": TOKEN, "limits": Limits(keep=True), **self.given})
        effect = step(life, self.event, given)
        assert effect.after is not None
        if effect.after.state is LifeState.DEAD:
            assert isinstance(effect.answer, Reason)
            return f"never: the timer is dead, reason `{effect.answer.value}`", _counted(life, effect)
        if self.event is LifeEvent.CLAIM:  # the first claim that finds it
            assert step(life, self.event, replace(given, now=given.now - 1)).after is life
            return WHEN[given.now], _counted(life, effect)
        return WHEN[effect.after.next_claim], _counted(life, effect)


def _counted(life: TimerLife, effect: Effect) -> str:
    assert effect.after is not None
    if not effect.after.occurrence:
        return "attempts start again from 1"
    return "counts" if effect.after.attempts > life.attempts else "does not count"


FAILURES = [
    Failure("NACK", LifeEvent.NACK, {"retry_after": POLICY}),
    Failure("NACK with `retry_after`", LifeEvent.NACK, {"retry_after": ASKED}),
    Failure("NACK with `retryable: false`", LifeEvent.REJECT, {"reason": Reason.FAILED}),
    Failure("REJECT", LifeEvent.REJECT),
    Failure("RESCHEDULE", LifeEvent.RESCHEDULE, {"due": NEW_DUE}),
    Failure(
        "nothing, and its connection breaks", LifeEvent.RELEASE, {"retry_after": POLICY}, "it had started"
    ),
    Failure(
        "nothing, and the relay dies",
        LifeEvent.CLAIM,
        {"now": LEASE_END, "nonce": b"2" * 16},
        "the relay had written the receipt to Redis",
    ),
]
UNSENT = Failure("nothing, since it was never sent", LifeEvent.RELEASE, {"unsent": True})


def retries() -> str:
    """The table of retries."""
    unsent = (UNSENT.said, *UNSENT.outcome(received=False))
    rows = [*(failure.cells() for failure in FAILURES), unsent]
    return _table(("the handler says", "due again", "an attempt"), rows)


LAST = Limits(max_attempts=1, keep=True, keep_expired=True)
HAPPENINGS: list[tuple[str, LifeEvent, dict[str, Any]]] = [
    ("Schedule", LifeEvent.SCHEDULE, {"due": NEW_DUE}),
    ("Cancel", LifeEvent.CANCEL, {}),
    ("RunTimer", LifeEvent.RUN, {}),
    ("a claim, when it is due or its lease is over", LifeEvent.CLAIM, {"now": LEASE_END}),
    ("the same after its expiry", LifeEvent.CLAIM, {"now": LEASE_END, "limits": LAST}),
    ("the same without a payload", LifeEvent.CLAIM, {"now": LEASE_END, "content": False}),
    ("a receipt", LifeEvent.RECEIPT, {}),
    ("EXTEND, or a renewal", LifeEvent.EXTEND, {}),
    ("ACK", LifeEvent.ACK, {}),
    ("NACK", LifeEvent.NACK, {"retry_after": POLICY}),
    ("NACK, the last attempt", LifeEvent.NACK, {"retry_after": POLICY, "limits": LAST}),
    ("a release by the relay", LifeEvent.RELEASE, {}),
    ("REJECT", LifeEvent.REJECT, {}),
    ("RESCHEDULE", LifeEvent.RESCHEDULE, {"due": NEW_DUE}),
    ("a redrive", LifeEvent.REDRIVE, {}),
]


def states() -> str:
    """The table of states and events."""
    rows = []
    for said, event, facts in HAPPENINGS:
        effects = {name: _happens(life, said, event, facts) for name, life in LIVES.items()}
        kinds = dict.fromkeys(
            effect.record.kind.name
            for name, effect in effects.items()
            if effect.record is not None and effect.after is not LIVES[name]
        )
        cells = [_cell(LIVES[name], event, effect) for name, effect in effects.items()]
        rows.append((said, *cells, ", ".join(kinds)))
    return _table(("", *LIVES, "in the journal"), rows)


def _happens(life: TimerLife | None, said: str, event: LifeEvent, facts: dict[str, Any]) -> Effect:
    if life is not None and "expiry" in said and life.state is not LifeState.DEAD:
        life = replace(life, expires=NOW)
    given = {"now": NOW, "nonce": TOKEN, "limits": Limits(keep=True), **facts}
    if event is LifeEvent.CLAIM:
        given["nonce"] = b"2" * 16
    return step(life, event, Given(**given))


def _cell(before: TimerLife | None, event: LifeEvent, effect: Effect) -> str:
    after, answer = effect.after, effect.answer
    if isinstance(answer, Reason):
        return f"DEAD, `{answer.value}`"
    if answer in (Verdict.STALE, Verdict.GONE, Change.GONE, Change.IN_FLIGHT, Change.UNCHANGED):
        return f"*{answer.name.lower().replace('_', ' ')}*"
    if after is None:
        return "" if before is None else "gone"
    if after is before or (after.state is LifeState.DEAD and event is LifeEvent.CLAIM):
        return ""
    if event is LifeEvent.SCHEDULE and before and before.state is LifeState.DEAD:
        return f"{after.state.value}; the letter stays"
    return after.state.value + (", a new intent" if before and not after.occurrence else "")


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(
        "|" + "|".join(f" {cell} " if cell != "---" else cell for cell in line) + "|" for line in lines
    )


def page(text: str) -> str:
    """The page with its tables."""
    for name, table in (("retries", retries()), ("states", states())):
        begin, end = f"<!-- {name}: written by tools/life_docs.py -->\n", f"<!-- {name} end -->\n"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        assert after, f"{PAGE.name} has no place for the table of {name}"
        text = f"{before}{begin}{table}\n{end}{after}"
    return text


def main() -> None:
    there = PAGE.read_text(encoding="utf-8")
    write_or_check(PAGE, page(there), "what relay/core/life.py says", "tools/life_docs.py")


if __name__ == "__main__":
    main()
