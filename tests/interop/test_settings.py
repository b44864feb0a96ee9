"""The settings that the peer's users know: the same names, the same defaults, the same keys."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from faststream_redis_timers import TimersBroker
from faststream_redis_timers.registrator import TimersRegistrator

from relay.settings import Settings
from relay.settings.tree import PolicySettings, RedisSettings
from relay.store.keys import KeyNames
from tests.interop.neighbours import Neighbours


@pytest.mark.parametrize("name", ["timeline_key", "payloads_key", "start_timeout"])
async def test_a_brokers_setting(name: str) -> None:
    """Under `redis`."""
    theirs = inspect.signature(TimersBroker).parameters[name].default
    assert getattr(RedisSettings(), name) == theirs


@pytest.mark.parametrize("name", ["polling_interval", "max_polling_interval", "lease_ttl"])
async def test_a_subscribers_setting(name: str) -> None:
    """Under `defaults` and each topic."""
    theirs = inspect.signature(TimersRegistrator.subscriber).parameters[name].default
    assert getattr(PolicySettings(), name) == theirs


async def test_max_concurrent_is_another_number() -> None:
    """It is the one that differs: 5 there, 100 here."""
    assert inspect.signature(TimersRegistrator.subscriber).parameters["max_concurrent"].default == 5
    assert Settings().defaults.max_concurrent == 100


async def test_the_keys_are_the_same(pair: Neighbours) -> None:
    """Two of our three, and no other is written by the peer."""
    redis: Any = pair.redis
    await pair.publish("a")
    found = {str(key, "utf-8") for key in await redis.keys(f"*{pair.topic}*")}
    assert found == set(KeyNames().of(pair.topic)[:2])
