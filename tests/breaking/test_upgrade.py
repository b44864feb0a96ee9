"""Relays of two versions at one server: that of the version before has not heard of durability."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from chaos.under import code
from chaos.under.preloaded import ToolMissing
from relay.v1.timer_service_pb2 import ScheduleRequest
from relay.v1.timer_service_pb2_grpc import TimerServiceStub
from tests import missing
from tests.worlds.relay.processes import CHANNEL
from tests.worlds.relay.producer import spec
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = [pytest.mark.checkout, pytest.mark.chaos]  # a shallow clone does not have the version before


def version_before() -> str:
    try:
        return code.before()
    except ToolMissing as lack:
        missing.skip(lack.what, lack.brought_by)


def heard_of_durability(target: str) -> bool:
    """Whether the relay refuses a level that there is not."""
    request = ScheduleRequest(timer=spec("t", "asked", b"", 3600.0), durability="nonsense")
    with grpc.insecure_channel(target, options=CHANNEL) as channel:
        try:
            TimerServiceStub(channel).Schedule(request, timeout=60.0, wait_for_ready=True)
        except grpc.RpcError:
            return True
    return False


def test_two_versions_share_a_server(stage: Stage, tmp_path: Path) -> None:
    """What one has stored, the other delivers."""
    old, new = stage.relay("old", start=False), stage.relay("new")
    old.root = code.unpack(version_before(), tmp_path / "old")
    old.start()
    assert not heard_of_durability(old.target)
    assert heard_of_durability(new.target)
    for stores, delivers in ((old, new), (new, old)):
        topic = f"of-{stores.name}"
        stage.producer(stores).schedule(topic, stores.name)
        stage.application(delivers, topic, name=f"on-{delivers.name}")
        eventually(lambda: stage.journal.ended()[stores.name], "it is delivered")  # noqa: B023
    stage.producer(new).cancel("t", "asked")


def test_without_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a copy that is no clone: it is said by name."""
    monkeypatch.setattr(code, "HERE", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(ToolMissing, match="no history of this repository here"):
        code.before.__wrapped__()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissing, match="no git here"):
        code.before.__wrapped__()
