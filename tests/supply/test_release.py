"""What `make release-check` refuses. The whole of it takes minutes, and is run before a release."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from tools import release

pytestmark = pytest.mark.checkout

PYPROJECT = '[project]\nname = "relay-timers"\nversion = "1.2.3"\n'


def test_the_version_is_one() -> None:
    assert release.version(PYPROJECT, '__version__ = "1.2.3"\n') == "1.2.3"
    with pytest.raises(release.NotReady, match=r"has version 1\.2\.3, and relay/__init__\.py 1\.2\.2"):
        release.version(PYPROJECT, '__version__ = "1.2.2"\n')
    with pytest.raises(release.NotReady, match="None"):
        release.version(PYPROJECT, "")


def test_this_version_is_one() -> None:
    pyproject, package = (release.ROOT / name for name in ("pyproject.toml", "relay/__init__.py"))
    wanted = release.version(pyproject.read_text(), package.read_text())
    assert release.news((release.ROOT / "CHANGELOG.md").read_text(), wanted) in (wanted, "Unreleased")


@pytest.mark.parametrize(
    ("changelog", "heading"),
    [
        ("## [Unreleased]\n\n- soon\n\n## [1.2.3]\n\n- now\n", "1.2.3"),
        ("## [Unreleased]\n\n### Added\n\n- soon\n\n## [1.2.2]\n\n- then\n", "Unreleased"),
    ],
)
def test_the_news_are_found(changelog: str, heading: str) -> None:
    assert release.news(changelog, "1.2.3") == heading


@pytest.mark.parametrize(
    "changelog", ["", "## [Unreleased]\n\n## [1.2.2]\n\n- then\n", "## [1.2.30]\n\n- later\n"]
)
def test_a_version_without_news_is_refused(changelog: str) -> None:
    with pytest.raises(release.NotReady, match=r"no news under \[1\.2\.3\]"):
        release.news(changelog, "1.2.3")


def test_files_of_archives_are_compared_without_metadata(tmp_path: Path) -> None:
    wheel, sdist = tmp_path / "a-1.whl", tmp_path / "a-1.tar.gz"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("relay/py.typed", "")
        archive.writestr("a-1.dist-info/METADATA", "")
    with tarfile.open(sdist, "w:gz") as packed:
        packed.add(__file__, "a-1/relay/x.py")
    assert release.files(wheel) == {"relay/py.typed"}
    assert release.files(sdist) == {"relay/x.py"}


def test_a_command_that_fails_is_told_with_its_words() -> None:
    with pytest.raises(release.NotReady, match="no such thing"):
        release.run("sh", "-c", "echo no such thing >&2; exit 3")


def test_a_machine_without_a_python_checks_nothing_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(release.NotReady, match=r"none of Python 3\.11, 3\.12, 3\.13, 3\.14 is found"):
        release.pythons()
