"""The tzdata of PyPI computes, whatever the machine has."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
import tzdata

from relay.rules import TZDATA, zones


@pytest.fixture
def wrong_machine(tmp_path: Path) -> Iterator[None]:
    """A machine on which Berlin has the clock of Tokyo."""
    tokyo = Path(tzdata.__path__[0], "zoneinfo", "Asia", "Tokyo").read_bytes()
    (tmp_path / "Europe").mkdir()
    (tmp_path / "Europe" / "Berlin").write_bytes(tokyo)
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath([tmp_path])
    zoneinfo.ZoneInfo.clear_cache()
    zones._read.cache_clear()
    yield
    zoneinfo.reset_tzpath(before)
    zoneinfo.ZoneInfo.clear_cache()


@pytest.mark.usefixtures("wrong_machine")
def test_the_machines_own_zones_do_not_count() -> None:
    second = 1_800_000_000
    assert zones.offset_at(zoneinfo.ZoneInfo("Europe/Berlin"), second) == 32_400, "the machine is wrong"
    berlin = zones.find_zone("Europe/Berlin")
    assert berlin is not None
    assert berlin.key == "Europe/Berlin"
    assert zones.offset_at(berlin, second) == 3_600


def test_the_version_is_the_iana_one() -> None:
    year, number = version("tzdata").split(".")[:2]
    assert f"{year}{'abcdefghijklmnopqrstuvwxyz'[int(number) - 1]}" == TZDATA


def test_every_name_can_be_read() -> None:
    for name in zones.zone_names():
        zone = zones.find_zone(name)
        assert zone is None if name == "UTC" else zone is not None


def test_times_at_which_a_clock_is_turned() -> None:
    berlin = zones.find_zone("Europe/Berlin")
    assert berlin is not None
    assert list(zones.turns(berlin, 1_767_225_600, 1_798_761_600)) == [1_774_746_000, 1_792_890_000]
