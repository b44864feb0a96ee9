"""Pages of very many dead letters: they end in time, and an action touches what its page has counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from relay.console.requests import Desk, PageCall, Shown
from relay.console.views import dead_actions, dead_letters
from relay.core.errors import InvalidField
from relay.v1 import topic_service_pb2 as pb

pytestmark = pytest.mark.anyio

LETTERS = 1_250


class Topics:
    """A topic's dead letters, as `TopicCalls` reads and removes them."""

    def __init__(self) -> None:
        self.left = [f"{number:05}" for number in range(LETTERS)]
        self.purged: list[int] = []

    async def list_dead(self, request: pb.ListDeadLettersRequest) -> pb.ListDeadLettersResponse:
        behind = [each for each in self.left if each > request.page_token]
        page = behind[: request.page_size]
        letters = [pb.DeadLetter(dead_id=each, reason="rejected", last_error="no") for each in page]
        more = page[-1] if len(behind) > len(page) else ""
        return pb.ListDeadLettersResponse(dead_letters=letters, next_page_token=more)

    async def get(self, request: pb.GetTopicRequest) -> pb.GetTopicResponse:
        return pb.GetTopicResponse(topic=pb.Topic(dead=len(self.left)))

    async def purge(self, request: pb.PurgeDeadLettersRequest) -> pb.PurgeDeadLettersResponse:
        self.purged.append(len(request.dead_ids))
        self.left = [each for each in self.left if each not in set(request.dead_ids)]
        return pb.PurgeDeadLettersResponse(purged=len(request.dead_ids))


@pytest.fixture
def topics() -> Topics:
    return Topics()


@pytest.fixture
def desk(topics: Topics) -> Desk:
    access = SimpleNamespace(require=lambda *_: None, allows=lambda *_: True)
    return cast("Desk", SimpleNamespace(topics=topics, access=access))


async def shown(handler: Any, desk: Desk, **given: str) -> Any:
    answer = await handler(desk, PageCall({"topic": "t", **given}, "anonymous"))
    assert isinstance(answer, Shown)
    return answer.about


@pytest.mark.parametrize(("patience", "looked"), [(0.0, dead_letters.AT_A_TIME), (60.0, LETTERS)])
async def test_a_page_ends_in_time(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, patience: float, looked: int
) -> None:
    monkeypatch.setattr(dead_letters, "PATIENCE", patience)
    about = await shown(dead_letters.dead_letters, desk)
    assert (about["looked_at"], sum(each.count for each in about["groups"])) == (looked, looked)
    assert bool(about["next"]) is (looked < LETTERS)


async def test_an_action_looks_at_as_many_as_its_page(
    desk: Desk, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the page had no time for all, the form takes what it has counted; whoever goes on takes
    the rest."""
    monkeypatch.setattr(dead_letters, "PATIENCE", 0.0)
    asking = (await shown(dead_actions.ask_purge, desk, reason="*"))["asking"]
    assert dict(asking.facts)["Dead letters"] == "100 of the 100 that are looked at first"
    done = (await shown(dead_actions.purge, desk, **asking.hidden))["done"]
    assert (topics.purged, len(topics.left)) == ([100], LETTERS - 100)
    done = (await shown(dead_actions.purge, desk, **done.again))["done"]
    assert (topics.purged, topics.left, done.again) == ([100, 500, 500, 150], [], None)


@pytest.mark.parametrize("most", ["0", "5001", "-1", "x", "٣"])
async def test_a_form_cant_ask_for_more(desk: Desk, most: str) -> None:
    with pytest.raises(InvalidField, match="most: is not a whole number from 1 to 5000"):
        await shown(dead_actions.purge, desk, reason="*", most=most)
