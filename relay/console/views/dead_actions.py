"""Redrive and purge dead letters: one, a group, or all that a page showed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from relay.console import shown
from relay.console.acting import NOTE, ActionDone, Asking, Fact
from relay.console.requests import Desk, PageAnswer, PageCall, whole
from relay.console.shapes import shape
from relay.console.views.dead_letters import looked_at, pages
from relay.core.trust.verbs import AccessVerb
from relay.v1 import topic_service_pb2 as pb

AT_ONCE = 5_000
"""The dead letters that one form looks at, at most; its answer goes on from there."""

ANY = "*"
"""In the place of a reason: all dead letters."""


@dataclass(frozen=True, slots=True)
class LetterChoice:
    """Which dead letters: one by its `dead_id`, or those with a reason and a shape, from `cursor` on, that
    had died by `until`, in microseconds: the instant at which the page before counted them. It looked at
    `most`."""

    topic: str
    dead_id: str
    reason: str
    shape: str
    cursor: str
    until: int | None = None
    most: int = AT_ONCE

    @classmethod
    def of(cls, call: PageCall) -> LetterChoice:
        """What a request says. Raises `InvalidField`."""
        dead_id = call.text("dead_id")
        reason = "" if dead_id else call.need("reason")
        until = call.instant("until")
        most = whole("most", call.text("most") or f"{AT_ONCE}", AT_ONCE)
        return cls(call.need("topic"), dead_id, reason, call.text("shape"), call.text("cursor"), until, most)

    def takes(self, letter: pb.DeadLetter) -> bool:
        """Whether a letter is one of them."""
        if self.until is not None and (shown.microseconds(letter.death_time) or 0) > self.until:
            return False
        return self.reason == ANY or (letter.reason == self.reason and shape(letter.last_error) == self.shape)

    @property
    def hidden(self) -> dict[str, str]:
        """The parameters that say it."""
        said = {
            "topic": self.topic,
            "dead_id": self.dead_id,
            "reason": self.reason,
            "shape": self.shape,
            "cursor": self.cursor,
            "until": "" if self.until is None else shown.utc(self.until),
            "most": "" if self.most == AT_ONCE else f"{self.most}",
        }
        return {name: text for name, text in said.items() if text}


async def _counted(desk: Desk, choice: LetterChoice) -> tuple[list[Fact], LetterChoice]:
    """What an action would touch, and the choice of just that: what dies while somebody reads the page is not
    purged unseen."""
    head: list[Fact] = [("Topic", shown.name(choice.topic))]
    if choice.dead_id:
        letter = (
            await desk.topics.get_dead(pb.GetDeadLetterRequest(topic=choice.topic, dead_id=choice.dead_id))
        ).dead_letter
        facts: list[Fact] = [
            *head,
            ("Timer", shown.name(letter.timer_id)),
            ("Died", shown.when(letter.death_time)),
            ("Reason", letter.reason),
        ]
        return facts, choice
    found, following, until, most = 0, "", 0, 0
    async for letters, cursor in looked_at(desk, choice.topic, choice.cursor, choice.most):
        most += len(letters)
        found += sum(map(choice.takes, letters))
        until = max(until, *(shown.microseconds(each.death_time) or 0 for each in letters), 0)
        following = cursor
    if following:  # those behind are not read yet, and by this relay's clock they may be any
        until = max(until, time.time_ns() // 1000)
    if choice.reason != ANY:
        head += [("Reason", choice.reason), ("Error", shown.visible(choice.shape) or "none")]
    more = f" of the {shown.count(most)} that are looked at first" if following else ""
    counted = replace(choice, until=until, most=max(most, 1) if following else AT_ONCE)
    return [*head, ("Dead letters", f"{shown.count(found)}{more}")], counted


async def _ask(desk: Desk, call: PageCall, verb: str, explanation: str, *, final: bool = False) -> PageAnswer:
    choice = LetterChoice.of(call)
    desk.access.require(AccessVerb.OPERATE, choice.topic)
    many = "the dead letter" if choice.dead_id else "dead letters"
    facts, counted = await _counted(desk, choice)
    return Asking(
        title=f"{verb} {many}",
        path=f"/console/dead/{verb.lower()}",
        button=verb,
        hidden=counted.hidden,
        facts=facts,
        back=shown.address("/console/dead", topic=choice.topic),
        topic=choice.topic,
        fields=(NOTE,),
        explanation=explanation,
        final=final,
    ).page()


async def ask_redrive(desk: Desk, call: PageCall) -> PageAnswer:
    """Ask before dead letters live again."""
    said = (
        "Each is due now, with attempts from 1, and carries the occurrence_id that it had. One whose id "
        "lives again is left alone."
    )
    return await _ask(desk, call, "Redrive", said)


async def ask_purge(desk: Desk, call: PageCall) -> PageAnswer:
    """Ask before dead letters are removed."""
    return await _ask(desk, call, "Purge", "They are removed for good.", final=True)


async def _all(desk: Desk, choice: LetterChoice, work: Counter[str], verb: str, note: str) -> str:
    """Act on all that are chosen, within those that are looked at; return where to go on."""
    if choice.dead_id:
        await _act(desk, choice.topic, [choice.dead_id], work, verb, note)
        return ""
    following = ""
    async for letters, cursor in pages(desk, choice.topic, choice.cursor, choice.most):
        following = cursor
        if names := [letter.dead_id for letter in letters if choice.takes(letter)]:
            await _act(desk, choice.topic, names, work, verb, note)
    return following


async def _act(
    desk: Desk, topic: str, dead_ids: Sequence[str], work: Counter[str], verb: str, note: str
) -> None:
    if verb == "Purge":
        request = pb.PurgeDeadLettersRequest(topic=topic, dead_ids=dead_ids, note=note)
        purged = (await desk.topics.purge(request)).purged
        work.update({"Purged": purged, "Not there any more": len(dead_ids) - purged})
        return
    redrive = pb.RedriveDeadLettersRequest(topic=topic, dead_ids=dead_ids, note=note)
    words = {
        pb.REDRIVE_RESULT_REDRIVEN: "Redriven",
        pb.REDRIVE_RESULT_NOT_FOUND: "Not there any more",
        pb.REDRIVE_RESULT_CONFLICT: "Left alone, since the timer lives again",
    }
    work.update(words[result] for result in (await desk.topics.redrive(redrive)).results)


async def _do(desk: Desk, call: PageCall, verb: str) -> PageAnswer:
    choice, work = LetterChoice.of(call), Counter[str]()
    desk.access.require(AccessVerb.OPERATE, choice.topic)
    following = await _all(desk, choice, work, verb, call.text("note"))
    facts: list[Fact] = [(what, shown.count(many)) for what, many in work.items() if many]
    back = shown.address("/console/dead", topic=choice.topic)
    rest = replace(choice, cursor=following, most=AT_ONCE)
    again = {**rest.hidden, "note": call.text("note")} if following else None
    title = f"{verb}: there are more" if again else f"{verb}: done"
    return ActionDone(
        title, facts or [("Dead letters", "none")], back, choice.topic, f"/console/dead/{verb.lower()}", again
    ).page()


async def redrive(desk: Desk, call: PageCall) -> PageAnswer:
    """Bring dead letters back to life."""
    return await _do(desk, call, "Redrive")


async def purge(desk: Desk, call: PageCall) -> PageAnswer:
    """Remove dead letters for good."""
    return await _do(desk, call, "Purge")
