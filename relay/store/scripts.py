"""The Lua scripts: one file per verb in `lua/`, each run by its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

Argument = bytes | str | int


@cache
def source(verb: str) -> str:
    """The text of `lua/<verb>.lua` behind the prelude."""
    packaged = files("relay") / "lua"
    folder = packaged if packaged.is_dir() else Path(__file__).parents[2] / "lua"
    return "\n".join((folder / f"{name}.lua").read_text(encoding="utf-8") for name in ("prelude", verb))


class Script:
    """One verb's script.

    Plain EVALSHA, and the text only once a server does not know it: after a restart, a failover
    or SCRIPT FLUSH that is, at the next call.
    """

    def __init__(self, verb: str, text: str | None = None) -> None:
        self.verb = verb
        self.text = source(verb) if text is None else text
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, redis: Redis, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Run it; raises what redis-py raises."""
        try:
            return await redis.execute_command("EVALSHA", self.sha, len(keys), *keys, *args)
        except NoScriptError:
            return await redis.execute_command("EVAL", self.text, len(keys), *keys, *args)
