"""Records what people change, before it is changed and afterwards."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

from google.rpc import code_pb2

from relay.api.errors import kind
from relay.core import validate
from relay.core.errors import ServiceError, StoreError
from relay.core.trust.access import EVERY_TOPIC
from relay.core.trust.actions import DONE, RELAY, TAKE_OVER_POLICY, Action, ActionStore
from relay.core.trust.principals import Principal, caller
from relay.core.trust.verbs import AccessVerb

SAID = ("principal", "verb", "method", "topic", "thing", "note", "before", "after", "outcome", "began")
"""What the relay's log says of an entry that the action log lacks."""

log = logging.getLogger(__name__)


class Actions:  # see 0110
    """What callers change, by the caller of the running task, or by `principal`. Without a store nothing is
    recorded. `relay` is the name of this process. `unwritten` is called for each entry that could not be
    written, and stands in the relay's log alone."""

    def __init__(
        self,
        store: ActionStore | None = None,
        relay: str = "",
        principal: Principal | None = None,
        unwritten: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._relay = relay
        self._principal = principal
        self._unwritten = unwritten

    def by(self, principal: Principal) -> Actions:
        """The same for what a principal does that does not call."""
        return Actions(self._store, self._relay, principal, self._unwritten)

    async def page(self, before: str, limit: int) -> list[Action]:
        """Return entries, the newest first; see `ActionStore.page`. None where nothing is recorded."""
        return [] if self._store is None else await self._store.page(before, limit)

    def record(self, verb: AccessVerb, method: str, topic: str, thing: str = "", note: str = "") -> Recording:
        """A block in which somebody changes something. Raises `InvalidField` for a note that is too long."""
        principal = (self._principal or caller.get()).name
        action = Action(principal, verb.value, method, topic, thing, validate.note(note), relay=self._relay)
        return Recording(self if self._store is not None else None, action)

    async def write(self, action: Action) -> str:
        """Write an entry, and return its id. If that fails, it is written to the relay's log and counted, and
        the id is empty: an action log that is away stops nobody."""
        if self._store is None:
            return ""
        try:
            return await self._store.append(action)
        except StoreError as failure:
            self._unwritten()
            said = {name: text for name in SAID if (text := getattr(action, name))}
            log.error(
                "the action log can't be written, and lacks this entry",
                extra={**said, "reason": str(failure)},
            )
            return ""

    async def took_over_policy(self, path: str, digest: str) -> None:
        """Record that a policy is in force, unless the last one recorded is the same. Raises `StoreError`."""
        if self._store is None:
            return
        action = Action(
            RELAY.name,
            AccessVerb.ADMIN.value,
            TAKE_OVER_POLICY,
            EVERY_TOPIC,
            path,
            relay=self._relay,
            outcome=DONE,
            after=digest,
        )
        await self._store.append(action, once=digest)


class Recording:
    """An action under way. Say `begin` before its effect, and set `after` once it has had one.

    A block that ends without either leaves nothing. One that is cancelled behind `begin`, or whose process
    dies, leaves an action without an end: nobody knows whether it had its effect.
    """

    def __init__(self, actions: Actions | None, action: Action) -> None:
        self._actions = actions
        self._action = action
        self._has_begun = False
        self.after = ""
        """What is now, in a few words."""

    async def begin(self, before: str) -> None:
        """Record what is about to happen, once."""
        if self._actions is None or self._has_begun:
            return
        self._has_begun = True
        action = replace(self._action, before=before)
        self._action = replace(action, began=await self._actions.write(action))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind_: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._actions is None or not (self._has_begun or self.after):
            return
        if failure is not None and not isinstance(failure, ServiceError):
            return
        outcome = DONE if failure is None else code_pb2.Code.Name(kind(failure).code)
        await self._actions.write(replace(self._action, outcome=outcome, after=self.after))
