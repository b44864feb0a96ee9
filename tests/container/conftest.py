"""The image, built once. This tier takes minutes and root: `make test-container` asks for it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.container.podman import BASE, IMAGE, NEEDED, ROOT, Podman
from tests.missing import skip

collect_ignore_glob = [] if os.environ.get("RELAY_CONTAINERS") == "1" else ["test_*.py"]


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    """With the base and our image in it."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        skip(", ".join(missing), f"apt-get install {' '.join(missing)}")
    if os.geteuid() != 0:
        skip("root")
    podman = Podman(Path(tempfile.mkdtemp(prefix="relay-podman-")))
    try:
        podman.make_base()
        podman.build(ROOT, IMAGE, "--build-arg=REVISION=abc", f"--build-arg=BASE={BASE}")
        yield podman
    finally:
        podman.close()
