"""What the Dockerfile says of who may do what, without a builder: tests/container builds it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.checkout

ROOT = Path(__file__).resolve().parents[2]


def stages() -> dict[str, list[str]]:
    """The instructions of each stage that is an image, by its name."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    found: dict[str, list[str]] = {}
    stage: list[str] = []
    for line in text.splitlines():
        if line.startswith("FROM "):
            stage = found.setdefault(line.rsplit(" AS ", 1)[1], [])
        elif line and not line.startswith("#"):
            stage.append(line)
    return found


def said(stage: list[str], instruction: str) -> list[str]:
    return [line.partition(" ")[2] for line in stage if line.startswith(f"{instruction} ")]


@pytest.mark.parametrize("image", ["relay", "pipeline", "outbox"])
def test_an_image_runs_as_a_user_without_rights(image: str) -> None:
    """By number, so that Kubernetes' runAsNonRoot can be checked, and nothing follows as root."""
    stage = stages()[image]
    (user,) = said(stage, "USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    behind = stage[stage.index(f"USER {user}") + 1 :]
    assert not [line for line in behind if line.startswith(("RUN ", "COPY ", "ADD "))]


def test_the_daemon_is_started_without_a_shell() -> None:
    """And its stage only copies what another one has installed: no shell is needed there."""
    stage = stages()["relay"]
    assert said(stage, "ENTRYPOINT") == ['["/opt/relay/bin/relay"]']
    assert said(stage, "CMD") == ['["serve"]']
    assert not said(stage, "RUN")
    assert [line for line in said(stage, "HEALTHCHECK") if 'CMD ["' not in line] == []


def test_what_is_installed_comes_by_its_pins_and_from_no_network() -> None:
    for name in ("wheels", "pipeline-wheels", "outbox-wheels"):
        assert all("--constraint constraints.txt" in line for line in said(stages()[name], "RUN"))
    for name in ("install", "pipeline-install", "outbox-install"):
        assert all("--no-index" in line for line in said(stages()[name], "RUN"))
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.+-]+", pin) for pin in pins)


def test_nothing_is_fetched_past_the_pins() -> None:
    """No ADD of an address, no curl, no package of the system."""
    text = "\n".join(line for stage in stages().values() for line in stage)
    assert not re.search(r"\bADD\b|curl|wget|apt-get|apk |https?://", text)
