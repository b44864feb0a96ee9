"""Tells a topic that is empty from one that does not exist, when a command finds nothing in it."""

from __future__ import annotations

import difflib

from relay.cli.terminal import output
from relay.cli.terminal.exits import NOT_FOUND, fail
from relay.client.calls.topics import TopicInfo, Topics

PAGE = 1000


async def doubt(topics: Topics, topic: str, info: TopicInfo | None = None) -> str:
    """Say that there is no such topic, with a similar name if there is one. Empty if the topic exists.

    A topic is known if it holds anything, whoever wrote that, if a relay has served it or stored a timer
    in it, or if the relay's settings name it. `info` is its state, if that was read already.
    """
    if _stands(info or await topics.get(topic)):
        return ""
    names = []
    async for each in topics.list(page_size=PAGE):
        if each.topic == topic:
            return ""
        names.append(each.topic)
    near = difflib.get_close_matches(topic, names, n=1)
    guess = f"did you mean {output.safe(near[0])}?" if near else "relay topics lists those that are"
    return f"no topic {output.safe(topic)} is known; {guess}"


async def require(topics: Topics, topic: str, info: TopicInfo | None = None) -> None:
    """End the command if there is no such topic; `info` is as for `doubt`."""
    if why := await doubt(topics, topic, info):
        fail(why, NOT_FOUND)


def _stands(info: TopicInfo) -> bool:
    behind = info.ready or info.processing or info.entries or info.groups
    return bool(info.timers or info.dead or info.paused or behind)
