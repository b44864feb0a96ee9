"""The docs as a site: it is whole by itself, each link and anchor leads somewhere, and search finds words."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.pages import ROOT
from tests.missing import skip

pytestmark = [pytest.mark.slow, pytest.mark.checkout]


def build(config: Path, to: Path) -> subprocess.CompletedProcess[str]:
    if find_spec("mkdocs") is None:
        skip("MkDocs", "make docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(to)]
    return subprocess.run(
        command, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a lost link, a lost anchor or a page that is in no menu is an error."""
    to = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", to)
    assert done.returncode == 0, done.stdout
    return to


def test_each_page_is_there(site: Path) -> None:
    for page in pages.pages():
        place = "index" if page == "README.md" else page.removesuffix(".md").removeprefix("docs/")
        place = place if page.startswith("docs/") or page == "README.md" else f"repository/{place}"
        names = [f"{place}.html", f"{place.removesuffix('README')}index.html"]
        assert any((site / name).is_file() for name in names), page


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    """Links may lead away; scripts, styles, fonts and pictures come with the site."""
    fetched = re.compile(
        r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"?(?:https?:)?//[^\s\">]+"
    )
    for page in site.rglob("*.html"):
        assert fetched.findall(page.read_text(encoding="utf-8")) == [], page
    for style in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//", style.read_text(encoding="utf-8")) == []


def test_sources_that_a_page_links_to_come_along(site: Path) -> None:
    page = (site / "explanation" / "fence.html").read_text(encoding="utf-8")
    assert 'href="../source/lua/lib/prelude.lua.txt"' in page
    script = (site / "source" / "lua" / "lib" / "prelude.lua.txt").read_text(encoding="utf-8")
    assert script == (ROOT / "lua" / "lib" / "prelude.lua").read_text(encoding="utf-8")


def test_the_search_knows_the_words(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    said = [(entry["location"], entry["title"] + entry["text"]) for entry in index["docs"]]
    found = {place.partition("#")[0] for place, words in said if "janitor" in words}
    assert {"explanation/failure.html", "reference/glossary.html"} <= found


@pytest.mark.parametrize(
    "line", ["[lost](nowhere.md)", "[lost](fence.md#nowhere)", "[lost](../../lua/nowhere.lua)"]
)
def test_a_lost_link_fails_the_build(line: str, tmp_path: Path) -> None:
    """In a small site of two pages, with the rules of the real one."""
    folder = tmp_path / "docs" / "explanation"
    folder.mkdir(parents=True)
    (folder / "fence.md").write_text("# Fence\n", encoding="utf-8")
    (folder / "delivery.md").write_text(f"# Delivery\n\n{line}\n", encoding="utf-8")
    told = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[0]
    told = told.replace("[tools/docs_site.py]", f"[{ROOT}/tools/docs_site.py]").replace("[site.css]", "[]")
    told = told.replace("omitted_files: warn", "omitted_files: ignore")
    (tmp_path / "mkdocs.yml").write_text(told, encoding="utf-8")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert "nowhere" in done.stdout
