"""Which dead letters a command works on: some by name, those that match a filter, or all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from relay.cli.terminal import parse
from relay.cli.terminal.exits import BAD_INPUT, fail
from relay.client.calls.topics import ALL_DEAD, DeadLetterFilter, DeadLetterInfo, Topics

PAGE = 500


@dataclass(frozen=True, slots=True)
class LetterOptions:
    """The filter options as they were typed."""

    timer_id: str | None
    reason: str | None
    since: str | None
    before: str | None

    def filter(self) -> DeadLetterFilter:
        """Return the same filter for the relay."""
        for option, text in (("--timer-id", self.timer_id), ("--reason", self.reason)):
            if text == "":
                fail(f"{option}: is empty; leave it out to mean any", BAD_INPUT)
        return DeadLetterFilter(
            timer_id=self.timer_id or "",
            reason=self.reason or "",
            died_since=parse.past(self.since, "--since") if self.since is not None else None,
            died_before=parse.past(self.before, "--before") if self.before is not None else None,
        )


@dataclass(frozen=True, slots=True)
class Selection:
    """What a bulk command works on: `names` if there are any, otherwise what `wanted` lets through."""

    names: tuple[str, ...]
    wanted: DeadLetterFilter

    @classmethod
    def of(cls, names: Sequence[str], asked: LetterOptions, everything: bool) -> Selection:
        """Require that exactly one of the three ways was used."""
        wanted = asked.filter()
        ways = [bool(names), wanted != ALL_DEAD, everything]
        if sum(ways) != 1:
            fail(
                "say which dead letters: give DEAD_IDs, or filters (--timer-id, --reason, --since, "
                "--before), or --all, and only one of these",
                BAD_INPUT,
            )
        return cls(tuple(dict.fromkeys(names)), wanted)

    def __str__(self) -> str:
        """The name of the selection in a sentence."""
        if self.names:
            return f"{len(self.names)} dead letters"
        return "all dead letters" if self.wanted == ALL_DEAD else "the dead letters that match"

    async def total(self, topics: Topics, topic: str) -> int:
        """The number of dead letters that have to be looked at."""
        return len(self.names) or (await topics.get(topic)).dead

    async def batches(
        self, topics: Topics, topic: str, total: int, size: int
    ) -> AsyncIterator[tuple[int, list[str], list[DeadLetterInfo]]]:
        """Yield batches: how many more dead letters were looked at, and up to `size` that are selected.

        At most `total` are looked at. The oldest come first, so a timer that dies meanwhile, after a
        redrive for instance, is not taken up again. The filter is applied here, since a page that the relay
        has filtered does not say how many letters it looked at.
        """
        for start in range(0, len(self.names), size):
            names = list(self.names[start : start + size])
            yield len(names), names, []
        if self.names:
            return
        left, token = total, ""
        while left > 0:
            letters, token = await topics.dead_page(topic, page_size=min(PAGE, left), token=token)
            left -= len(letters)
            for start in range(0, len(letters), size):
                looked = letters[start : start + size]
                meant = [letter for letter in looked if self.wanted(letter)]
                yield len(looked), [letter.dead_id for letter in meant], meant
            if not token:
                return
