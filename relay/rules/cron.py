"""Cron expressions: which wall times they have."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from datetime import datetime, timedelta

from cronsim import CronSim, CronSimError

from relay.core.errors import InvalidField
from relay.core.recurring.rule import EPOCH

_TICK = timedelta(seconds=1)


class CronWalls:
    """The wall times of a cron expression of five or six fields. Raises `InvalidField`."""

    def __init__(self, expression: str) -> None:
        try:
            self._sim = CronSim(expression, EPOCH)
        except CronSimError as error:
            raise InvalidField("rule.cron", f"{error} in {expression!r}") from error
        self.elapsed = self._sim.parts[2].startswith("*")

    def __call__(self, start: datetime) -> Iterator[datetime]:
        """See `Walls`."""
        sim = copy(self._sim)
        sim.dt = start - _TICK
        try:
            yield from sim
        except OverflowError:
            return  # the year 10000
