"""What notices the breaks of the journal: every one of the scenarios named."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from relay.core.journal import Adoption, RecordKind
from relay.core.outcomes import Verb
from tests.contract import test_journal as contract
from tests.contract.subject import Subject
from tests.lua import test_journal as journal
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import own, score

Scenario = Callable[[Bench], Awaitable[None]]


def kept(scenario: Callable[..., Awaitable[None]], **arguments: Any) -> Scenario:
    """A scenario on a topic with a journal."""

    async def run(bench: Bench) -> None:
        bench.keep = 10_000
        await scenario(bench, **arguments)

    return run


def agreed(scenario: Callable[..., Awaitable[None]], **arguments: Any) -> Scenario:
    """The same, of the contract of all stores."""

    async def run(bench: Bench) -> None:
        bench.keep = 10_000
        subject = Subject(bench.store, bench.topic, partial(setattr, bench, "now"), bench)
        await scenario(subject, **arguments)

    return run


one_batch = agreed(contract.test_one_batch_a_call)
full = kept(journal.test_a_full_redis_drains)
taken = kept(journal.test_taken_is_told_by_whoever_removes_our_record)
unable = kept(journal.test_a_right_that_only_a_journal_needs)
voided = journal.test_a_token_that_a_foreign_writer_voids

OF_JOURNAL: dict[str, tuple[Scenario, ...]] = {
    "numbers begin anew": (one_batch,),
    "numbers of batches": (one_batch,),
    "the journal begins with an addition": (full,),
    "schedule appends behind a delete": (kept(journal.test_schedule_is_refused_whole),),
    "schedule without a record": (agreed(contract.test_scheduled),),
    "claim without a record": (agreed(contract.test_claimed),),
    "settle without a record": (agreed(contract.test_acked),),
    "extend without a record": (agreed(contract.test_renewals, received=True, kind=RecordKind.RECEIVED),),
    "redrive without a record": (kept(journal.test_redriven),),
    "run without a record": (agreed(contract.test_run),),
    "cancel without a record": (agreed(contract.test_cancelled),),
    "repair without a record": (kept(journal.test_repaired),),
    "purge without a record": (kept(journal.test_purged),),
    "dead letters before it is known that they can be recorded": (unable,),
    "a trim before it is known that it can be recorded": (unable,),
    "a resume before it is known that it can be recorded": (unable,),
    "trim without a record": (kept(journal.test_dead_letters_trimmed),),
    "pause without a record": (kept(journal.test_paused),),
    "an empty entry": (agreed(contract.test_a_call_that_changes_nothing),),
    "the journal is never trimmed": (agreed(contract.test_trimmed),),
    "the journal is trimmed too early": (agreed(contract.test_trimmed),),
    "the journal is trimmed at once": (agreed(contract.test_a_limit_that_was_lowered),),
    "trimmed entries are counted": (agreed(contract.test_trimmed),),
    "an ack leaves no record": (agreed(contract.test_acked),),
    "the stale leave no record": (agreed(contract.test_refused, verb=Verb.ACK, refused=RecordKind.ACKED),),
    "a refusal names no lease": (agreed(contract.test_refused, verb=Verb.ACK, refused=RecordKind.ACKED),),
    "an adoption is not told": (kept(voided, at=score(NOW + 7), adopted=Adoption.INTENT),),
    "a foreign lease is not told": (kept(voided, at=own(NOW + 7), adopted=Adoption.LEASE),),
    "what was taken is not told": (taken,),
    "a lapse is not told": (agreed(contract.test_claimed_after_a_lapse, received=True),),
    "errors at length": (kept(journal.test_an_error_takes_few_bytes),),
    "a failed attempt without its error": (agreed(contract.test_errors_are_told_in_short),),
    "each claim as the first": (agreed(contract.test_claimed_again),),
    "the due time before is not told": (agreed(contract.test_replaced),),
    "a lease voided is not told": (agreed(contract.test_replaced_in_flight),),
    "a cancelled lease is not told": (agreed(contract.test_cancelled),),
    "a receipt as a renewal": (agreed(contract.test_renewals, received=True, kind=RecordKind.RECEIVED),),
    "the end of a renewal is not told": (
        agreed(contract.test_renewals, received=False, kind=RecordKind.EXTENDED),
    ),
    "the letter is not told": (kept(journal.test_the_letter_of_a_death),),
    "the expired as dead": (agreed(contract.test_expired),),
    "a lost payload is not told": (kept(journal.test_parked_and_orphaned),),
}
