"""A topic that nobody knows: commands that find nothing in it say so, with a near name."""

from __future__ import annotations

import pytest

from relay.v1 import topic_service_pb2 as pb
from tests.cli.conftest import Run
from tests.cli.double import Double

LOOKS = [
    ("stats",),
    ("list",),
    ("list", "--state", "leased", "--json"),
    ("stats", "--json"),
    ("dead", "list"),
    ("dead", "list", "--json"),
    ("dead", "redrive", "--all"),
    ("dead", "purge", "--all", "--yes"),
    ("resume",),
    ("topics", "reshard", "--partitions=1"),
]


def words(look: tuple[str, ...], topic: str) -> list[str]:
    """The topic stands behind the command's name, before its options."""
    names = [word for word in look if not word.startswith("-") and word != "leased"]
    return [*names, topic, *look[len(names) :]]


@pytest.mark.parametrize("look", LOOKS, ids=" ".join)
def test_an_unknown_topic_is_denied(run: Run, double: Double, look: tuple[str, ...]) -> None:
    """Exit 3, nothing on standard output, and nothing is changed."""
    double.topics.topics["orders"] = pb.Topic(topic="orders")
    result = run(*words(look, "ordes"))
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "relay: no topic ordes is known; did you mean orders?\n"
    far = run(*words(look, "nosuch"))
    assert (far.exit_code, far.stderr) == (
        3,
        "relay: no topic nosuch is known; relay topics lists those that are\n",
    )
    assert not double.topics.asked("ResumeTopic")


@pytest.mark.parametrize("look", LOOKS, ids=" ".join)
def test_a_known_topic_may_be_empty(run: Run, double: Double, look: tuple[str, ...]) -> None:
    double.topics.topics["orders"] = pb.Topic(topic="orders")
    assert run(*words(look, "orders")).exit_code == 0


def test_pausing_ahead_is_allowed_and_a_misspelt_name_is_told(run: Run, double: Double) -> None:
    double.topics.topics["orders"] = pb.Topic(topic="orders")
    result = run("pause", "ordes")
    assert (result.exit_code, result.stdout) == (0, "paused ordes until it is resumed\n")
    assert result.stderr == "relay: no topic ordes is known; did you mean orders?\n"
    assert run("pause", "orders").stderr == ""
    assert run("stats", "ordes").exit_code == 0, "its pause stands"
