"""Every field is described, and docs/reference/settings.md says what the settings say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from relay.settings import load
from relay.settings.describe import ANY_TOPIC, fields

ROOT = Path(__file__).resolve().parents[2]


def test_every_field_has_what_its_user_needs() -> None:
    """A description; a number has a unit and bounds, too, and the default lies within them."""
    for field in fields():
        assert field.description.endswith("."), field
        if "number" in field.type:
            assert field.unit, field
            assert field.lowest is not None, field
            assert field.highest is not None, field
            assert field.lowest <= field.default <= field.highest, field


def test_every_fields_variable_sets_it() -> None:
    for field in fields():
        variable = field.variable.replace(ANY_TOPIC, "some")
        tree = load(environ={variable: str(field.default)}).model_dump(mode="json")
        for part in field.path:
            tree = tree["some" if part == ANY_TOPIC else part]
        assert tree == field.default, field


@pytest.mark.checkout
def test_the_page_has_not_drifted() -> None:
    subprocess.run([sys.executable, ROOT / "tools" / "settings_docs.py", "--check"], check=True, timeout=150)
