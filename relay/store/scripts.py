"""The Lua scripts: one file per verb in `lua/`, each run by its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from time import monotonic
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, ResponseError

from relay.core.errors import StoreUnavailable
from relay.store.errors import says_readonly, translated_errors
from relay.store.keys import KeyNames
from relay.store.pool import MasterPool

Argument = bytes | str | int

Observe = Callable[[str, float], None]
"""Told of a script call that was answered: its verb, and how many seconds it took."""


def unobserved(verb: str, seconds: float) -> None:
    """Nobody wants to know."""


@cache
def source(verb: str) -> str:
    """The text of `lua/<verb>.lua` behind the prelude."""
    packaged = files("relay") / "lua"
    folder = packaged if packaged.is_dir() else Path(__file__).parents[2] / "lua"
    return "\n".join((folder / f"{name}.lua").read_text(encoding="utf-8") for name in ("prelude", verb))


KEYS = {"claim": 5, "settle": 4, "letters": 4, "redrive": 4, "purge": 4, "trim": 4, "stats": 5, "pause": 5}
"""How many of a topic's keys a script takes, if not the first three."""


class Script:
    """One verb's script.

    Plain EVALSHA, and the text only once a server does not know it: after a restart, a failover
    or SCRIPT FLUSH that is, at the next call.
    """

    def __init__(self, verb: str, text: str | None = None) -> None:
        self.verb = verb
        self.keys = KEYS.get(verb, 3)
        self.text = source(verb) if text is None else text
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, redis: Redis, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Run it on the first of a topic's `keys`; raises what redis-py raises."""
        keys = keys[: self.keys]
        try:
            return await redis.execute_command("EVALSHA", self.sha, len(keys), *keys, *args)
        except NoScriptError:
            return await redis.execute_command("EVAL", self.text, len(keys), *keys, *args)


class Scripts:
    """The scripts of some verbs on one server, with redis-py's errors translated.

    `demoted` is called when the server turns out to be a replica now. `texts` replaces scripts by
    other text, for tests that break them on purpose.
    """

    def __init__(
        self,
        redis: Redis,
        keys: KeyNames,
        verbs: Sequence[str],
        *,
        demoted: Callable[[], None] = lambda: None,
        texts: Mapping[str, str] | None = None,
        observe: Observe = unobserved,
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._demoted = demoted
        self._observe = observe
        self._scripts = {verb: Script(verb, (texts or {}).get(verb)) for verb in verbs}

    async def run(self, verb: str, topic: str, *args: Argument) -> Any:
        """Run one; raises `StoreError`."""
        began = monotonic()
        try:
            async with translated_errors():
                reply = await self._scripts[verb](self._redis, self._keys.of(topic), args)
        except StoreUnavailable as failure:
            if says_readonly(failure.__cause__):
                self._leave()
            raise
        self._observe(verb, monotonic() - began)
        return reply

    async def run_each(self, verb: str, topics: Sequence[str]) -> list[Any]:
        """Run one on each topic, without arguments, in one pipeline. What Redis refuses of one topic is
        an exception in its place; raises `StoreError` where nothing came of it."""
        if not topics:
            return []
        async with translated_errors():
            replies = await self._pipelined(verb, topics)
            unknown = next((i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)), None)
            if unknown is not None:
                with suppress(ResponseError):  # of that topic; the server knows the script then
                    await self._scripts[verb](self._redis, self._keys.of(topics[unknown]), ())
                replies = await self._pipelined(verb, topics)
        return replies

    async def _pipelined(self, verb: str, topics: Sequence[str]) -> list[Any]:
        script = self._scripts[verb]
        async with self._redis.pipeline(transaction=False) as pipe:
            for topic in topics:
                pipe.execute_command("EVALSHA", script.sha, script.keys, *self._keys.of(topic)[: script.keys])
            replies: list[Any] = await pipe.execute(raise_on_error=False)
        return replies

    def _leave(self) -> None:
        """A master that became a replica may keep its connections: let new ones look for the new master."""
        self._demoted()
        pool = self._redis.connection_pool
        if isinstance(pool, MasterPool):
            pool.renew()
