"""The second judge: Relay's own audit of the topic's journal, and the journal beside the ledgers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chaos.judging.judge import Judge
from chaos.world import TOPIC
from relay.core.audit import PromiseVerdict
from relay.store.journal import files as journal_file
from tests.judge import Trial
from tests.worlds.relay.processes import Event, command


@dataclass(frozen=True)
class SecondOpinion:
    """What the journal says of the run. `refuted` are promises, in the audit's words; `differences` are what
    the ledgers and the journal tell differently."""

    verdict: str
    refuted: Sequence[str] = ()
    unsaid: Sequence[str] = ()
    differences: Sequence[str] = field(default=())

    def agrees(self, judge: Judge) -> bool:
        """Whether both find something broken, or neither does, and they tell the same story."""
        return not self.differences and bool(self.refuted) is bool(judge.verdict.broken)


def second_opinion(url: str, directory: Path, judge: Judge, *, may_lose: bool) -> SecondOpinion:
    """Audit the topic's journal by `relay audit`, and compare it with the ledgers.

    Where servers may lose what they answered for, they lose the journal with it: then old timers may be left,
    and handlers know more than the journal.
    """
    settings = {"RELAY_REDIS__URL": url}
    strict = () if may_lose else ("--at-rest",)
    ran = command("audit", TOPIC, "--json", "--exclusive", *strict, settings=settings, timeout=600.0)
    if not ran.out:
        return SecondOpinion("none", differences=[f"no audit: {ran.err[-500:]}"])
    said = json.loads(ran.out)
    by_verdict = {
        verdict: [
            f"{each['title']}: {each['broken']} broken, {each['doubts']}, {each['examples'][:1]}"
            for each in said["promises"]
            if each["verdict"] == verdict
        ]
        for verdict in (PromiseVerdict.REFUTED.value, PromiseVerdict.UNSAID.value)
    }
    return SecondOpinion(
        said["verdict"],
        by_verdict[PromiseVerdict.REFUTED.value],
        by_verdict[PromiseVerdict.UNSAID.value],
        [] if may_lose else _differences(settings, directory, judge),
    )


def _differences(settings: dict[str, str], directory: Path, judge: Judge) -> list[str]:
    """What callers and handlers know that the journal does not have, or has otherwise."""
    path = directory / "journal"
    ran = command("journal", "export", TOPIC, str(path), settings=settings, timeout=600.0)
    if ran.code:
        return [f"no journal: {ran.err[-500:]}"]
    try:
        Trial(journal_file.batches(path, TOPIC)).agrees(_accepted(judge), _events(judge))
    except AssertionError as difference:
        return [str(difference)[:1000]]
    return []


def _accepted(judge: Judge) -> list[str]:
    """The timers of which a Schedule was answered OK."""
    return [
        name
        for name, calls in judge.calls.of_timers.items()
        if any(not call.open and call.what == "schedule" for call in calls)
    ]


def _events(judge: Judge) -> list[Event]:
    """The handlers' ledgers, as the trial reads them. Nobody waits until a claim is durable: where servers
    have lost something, handlers may have begun more than the journal has claims of."""
    begun = () if judge.losses.all else ("start",)
    return [
        Event(event, each.begins, 0, TOPIC, each.id, attempt=each.attempt, occurrence=each.occurrence)
        for each in judge.deliveries
        for event in ((*begun, "end") if each.outcome else begun)
    ]
