"""The world of the property tests, foreign writers included, with the audit as a second judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from relay.core.audit import Audit, Promise, PromiseVerdict, Report
from relay.core.journal import JournalBatch
from tests.audit.test_histories import opened, shown
from tests.chaos import count
from tests.properties import search
from tests.properties.world import World
from tests.worlds.scripts.states import State

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

pytestmark = pytest.mark.slow

SEARCH = settings(search.SEARCH, max_examples=count(15, 400))


class Judged(World):
    """Each run's journal is audited: as it stands when somebody looks, and in the end."""

    def teardown(self) -> None:
        """Nothing that anybody did is held against Relay."""
        before = self._report()
        assert not refuted(before), shown(before)
        super().teardown()
        after = self._report()
        assert not refuted(after), shown(after)
        for promise in (Promise.ONE_LEASE, Promise.HONEST_ATTEMPTS):
            if after.batches:
                assert after.of(promise).verdict is PromiseVerdict.PROVED, shown(after)

    def _report(self) -> Report:
        batches: list[JournalBatch] = self._do(self.bench.batches())
        return judge(batches, self.bench.state())


def judge(batches: list[JournalBatch], state: State) -> Report:
    audit = Audit(exclusive=False)
    for batch in batches:
        audit.add(batch)
    ids = list(audit.unreconciled())
    audit.reconcile(ids, [(name in state.timeline, name in state.leases) for name in ids])
    return audit.report()


def refuted(report: Report) -> list[Promise]:
    return [each.promise for each in report.judgements if each.verdict is PromiseVerdict.REFUTED]


@pytest.mark.timeout(600)
def test_nobody_is_blamed_for_what_others_do(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Publishers and workers that know nothing of Relay make doubts, and never a false verdict."""
    with opened(valkey, keyspace.topic()) as (bench, runner):
        world = Judged.subclass(bench, runner)
        run_state_machine_as_test(world, settings=SEARCH)
