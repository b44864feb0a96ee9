"""Leases by columns: each stays what it is, however they are cut."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

import pytest

from relay.core.timers import ClaimedTimer, ClaimedTimers
from relay.engine.delivery.leases import Lease, Leases

COUNT = 5


@pytest.fixture
def leases() -> Leases:
    """No two have anything in common."""
    timers = [
        ClaimedTimer(
            f"id-{n}",
            b"payload-%d" % n,
            {"h": f"{n}"},
            f"type/{n}",
            1_000_000 * n,
            n + 1,
            f"occurrence-{n}",
            cast("bool", f"approximate-{n}"),
            cast("bool", f"suspect-{n}"),
            cast("bool", f"readable-{n}"),
            100 + n,
            b"proof-%d" % n,
        )
        for n in range(COUNT)
    ]
    made = Leases.of(
        "t",
        ClaimedTimers.of(timers),
        b"n" * 16,
        deadline_time=7,
        deadline=1.0,
        silent_until=2.0,
        epoch=3.0,
    )
    for n, lease in enumerate(made):
        lease.deadline, lease.silent_until = 10.0 + n, 20.0 + n
        lease.received, lease.lost = cast("bool", f"received-{n}"), cast("bool", f"lost-{n}")
        made.traces |= {n: cast("Any", f"trace-{n}")} if n % 2 else {}
    return made


def known(leases: Leases) -> list[dict[str, Any]]:
    """All that is known of each."""
    names = [name for name in vars(Lease) if name[0] != "_"]
    return [{name: getattr(lease, name) for name in names} for lease in leases]


def test_one_of_many(leases: Leases) -> None:
    """What it says of itself is what it was claimed with."""
    lease = leases[3]
    assert (lease.token, lease.nonce) == (b"n" * 16 + b"\0\3", b"proof-3")
    assert (lease.topic, lease.deadline_time, lease.due) == ("t", 7, 6.0)
    assert (lease.deadline, lease.silent_until) == (13.0, 23.0)
    assert lease.size == len(b"payload-3") + len("h3")
    assert lease.timer == ClaimedTimer(
        "id-3",
        b"payload-3",
        {"h": "3"},
        "type/3",
        3_000_000,
        4,
        "occurrence-3",
        cast("bool", "approximate-3"),
        cast("bool", "suspect-3"),
        cast("bool", "readable-3"),
        103,
        b"proof-3",
    )
    assert (lease.timer_id, leases[-2], {*leases}) == ("id-3", lease, {leases[n] for n in range(COUNT)})


def test_a_cut_keeps_everything(leases: Leases) -> None:
    """Whatever is known of a lease goes with it, and is its own from then on."""
    whole = known(leases)
    for start in range(COUNT):
        for stop in range(start + 1, COUNT + 1):
            assert known(leases[start:stop]) == whole[start:stop]
    part = leases[1:3]
    for column in fields(part):
        if isinstance(getattr(part, column.name), list):
            getattr(part, column.name).clear()
    for timers in fields(part.timers):
        getattr(part.timers, timers.name).clear()
    assert known(leases) == whole


@pytest.mark.parametrize("places", [[], [0], [2], [4], [1, 3], [0, 1], [0, 1, 2, 3, 4]])
def test_without_some(leases: Leases, places: list[int]) -> None:
    """The others, in their order."""
    rest = [one for part in leases.without(places) for one in known(part)]
    assert rest == [one for place, one in enumerate(known(leases)) if place not in places]


def test_an_index_beyond() -> None:
    """Is an error, as of any sequence; and of nothing there is nothing."""
    timers = ClaimedTimers.of([])
    assert (len(timers), list(timers), list(timers[:3])) == (0, [], [])
    with pytest.raises(IndexError):
        Leases.of("t", timers, b"", deadline_time=0, deadline=0.0, silent_until=0.0, epoch=0.0)[0]
