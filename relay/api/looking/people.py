"""What people did, for those who may read the topics that it was done to."""

from __future__ import annotations

from dataclasses import dataclass

from relay.api.access import Access
from relay.core.trust.actions import Action, joined
from relay.core.trust.verbs import AccessVerb

PAGE = 200
"""The entries that one page looks at."""


@dataclass(frozen=True, slots=True)
class ActionsFound:
    """Actions, the newest first. `before` goes on with older ones, and is empty at the end."""

    actions: list[Action]
    before: str


class ActionCalls:
    """Reads the action log. Each action is shown to those who have the verb `read` on its topic; what belongs
    to no topic, to those who have it on all."""

    def __init__(self, access: Access | None = None) -> None:
        self._access = access or Access()

    async def page(self, *, topic: str = "", principal: str = "", before: str = "") -> ActionsFound:
        """Read a page: of one topic and of one principal, if they are named. One XREVRANGE. Raises
        `InvalidField` and `Denied`."""
        if topic:
            self._access.require(AccessVerb.READ, topic)
        entries = await self._access.actions.page(before, PAGE)
        # Oldest first, as `joined` wants them. The end of an action always is newer than its beginning.
        shown = [each for each in joined(reversed(entries)) if self._fits(each, topic, principal)]
        return ActionsFound(shown[::-1], entries[-1].entry if len(entries) == PAGE else "")

    def _fits(self, action: Action, topic: str, principal: str) -> bool:
        return (
            topic in ("", action.topic)
            and principal in ("", action.principal)
            and self._access.allows(AccessVerb.READ, action.topic)
        )
