"""The Lua scripts: `timeline/claim` is the verb in `lua/timeline/claim.lua`; each is run by its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from time import monotonic
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, ResponseError

from relay.core.errors import StoreUnavailable
from relay.core.journal import NO_JOURNALS, Journals
from relay.store.keys import KeyNames
from relay.store.server.errors import says_readonly, translated_errors
from relay.store.server.manifest import manifest, text_of
from relay.store.server.pool import MasterPool

Argument = bytes | str | int

Observe = Callable[[str, float], None]
"""Told of a script call that was answered: its verb, and how many seconds it took."""


def ignore_duration(verb: str, seconds: float) -> None:
    """Nobody wants to know."""


OnRefusedHint = Callable[[str], None]
"""Told why Redis refused the wake hint of a script call. The call itself has done what it was to do."""


def ignore_reason(reason: str) -> None:
    """Nobody wants to know."""


def reply_of(reply: Any, unheard: OnRefusedHint) -> Any:
    """A script's own reply; `unheard` is told if Redis refused its wake hint. See `answer` in the prelude."""
    if isinstance(reply, list) and reply and reply[0] == b"UNHEARD":
        _, reason, reply = reply
        unheard(reason.decode(errors="replace"))
    return reply


@cache
def source(name: str) -> str:
    """The text of a script: `timeline/claim` is `lua/timeline/claim.lua` behind the locals that its manifest
    declares, `lua/lib/prelude.lua` and what it uses of `lua/lib`; `timeline/claim+journal` has
    `lua/lib/journal.lua` behind the prelude."""
    verb, _, journal = name.partition("+")
    declared = manifest(verb)
    shared = [text_of(f"lib/{part}") for part in ("prelude", journal, *declared.uses) if part]
    return "\n".join((declared.head(), *shared, text_of(verb)))


class Script:
    """One verb's script, `+journal` for topics that have one.

    Plain EVALSHA, and the text only once a server does not know it: after a restart, a failover
    or SCRIPT FLUSH that is, at the next call.
    """

    def __init__(self, name: str, text: str | None = None) -> None:
        verb, _, journal = name.partition("+")
        self.name = name
        declared = manifest(verb)
        self.keys = declared.own_keys
        self.writes = declared.writes
        self.journal = bool(journal)
        self.marks = declared.marks
        self.text = source(name) if text is None else text
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    async def __call__(
        self, redis: Redis, keys: Sequence[str], args: Sequence[Argument], marks: str = ""
    ) -> Any:
        """Run it on what it takes of a topic's `keys` and `marks`; raises what redis-py raises."""
        keys = [*keys[: self.keys], *((marks,) if self.marks else ()), *(keys[-1:] if self.journal else ())]
        try:
            return await redis.execute_command("EVALSHA", self.sha, len(keys), *keys, *args)
        except NoScriptError:
            return await redis.execute_command("EVAL", self.text, len(keys), *keys, *args)


class Scripts:
    """The scripts of some verbs on one server, with redis-py's errors translated.

    `demoted` is called when the server turns out to be a replica now. `texts` replaces scripts by
    other text, for tests that break them on purpose. `unheard` is told of each wake hint that Redis
    refused. `names` tells a topic's keys in the order that these
    scripts take them, the journal last, if that is not the one of all.
    """

    def __init__(
        self,
        redis: Redis,
        keys: KeyNames,
        verbs: Sequence[str],
        *,
        journals: Journals = NO_JOURNALS,
        demoted: Callable[[], None] = lambda: None,
        texts: Mapping[str, str] | None = None,
        observe: Observe = ignore_duration,
        unheard: OnRefusedHint = ignore_reason,
        names: Callable[[str], Sequence[str]] | None = None,
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._names = names or keys.of
        self._demoted = demoted
        self._journals = journals
        self._observe = observe
        self._unheard = unheard
        scripts = (*verbs, *(f"{verb}+journal" for verb in verbs if manifest(verb).writes))
        self._scripts = {name: Script(name, (texts or {}).get(name)) for name in scripts}

    async def run(self, verb: str, topic: str, *args: Argument, names: Sequence[str] | None = None) -> Any:
        """Run one, on the topic's keys or on those of `names`; raises `StoreError`."""
        names, marks = self._names(topic) if names is None else names, self._keys.marks_of(topic)
        began = monotonic()
        writes = self._scripts[verb].writes
        keep = self._journals.keep(topic) if writes else 0
        if keep:
            reply, trimmed = await self._call(f"{verb}+journal", names, (*args, keep), marks)
            if trimmed:
                self._journals.trimmed(topic, trimmed)
        else:
            reply = await self._call(verb, names, args, marks)
        self._observe(verb, monotonic() - began)
        return reply_of(reply, self._unheard) if writes else reply

    async def _call(self, name: str, keys: Sequence[str], args: Sequence[Argument], marks: str) -> Any:
        try:
            with translated_errors():
                return await self._scripts[name](self._redis, keys, args, marks)
        except StoreUnavailable as failure:
            if says_readonly(failure.__cause__):
                self._leave()
            raise

    async def run_each(self, verb: str, topics: Sequence[str]) -> list[Any]:
        """Run one on each topic, without arguments, in one pipeline. What Redis refuses of one topic is
        an exception in its place; raises `StoreError` where nothing came of it."""
        if not topics:
            return []
        with translated_errors():
            replies = await self._pipelined(verb, topics)
            unknown = next((i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)), None)
            if unknown is not None:
                with suppress(ResponseError):  # of that topic; the server knows the script then
                    await self._scripts[verb](self._redis, self._names(topics[unknown]), ())
                replies = await self._pipelined(verb, topics)
        return replies

    async def _pipelined(self, verb: str, topics: Sequence[str]) -> list[Any]:
        script = self._scripts[verb]
        async with self._redis.pipeline(transaction=False) as pipe:
            for topic in topics:
                pipe.execute_command("EVALSHA", script.sha, script.keys, *self._names(topic)[: script.keys])
            replies: list[Any] = await pipe.execute(raise_on_error=False)
        return replies

    def _leave(self) -> None:
        """A master that became a replica may keep its connections: let new ones look for the new master."""
        self._demoted()
        pool = self._redis.connection_pool
        if isinstance(pool, MasterPool):
            pool.renew()
