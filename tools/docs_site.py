"""A hook of MkDocs: the site has what docs/ links to, too.

README.md is the front page. Other pages outside docs/, such as ARCHITECTURE.md, are below `repository/`.
Source files that a page links to are plain text below `source/`. A link to a folder becomes its words. So the
site is whole by itself, and nothing in it leads back to a code host.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = ("*.md", "examples/*/*.md", "deploy/helm/*/*.md")
"""The pages outside docs/, as in `tests/docs/pages.py`."""

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/, and the sources that any page links to."""
    pages = [path.relative_to(ROOT).as_posix() for pattern in OUTSIDE for path in ROOT.glob(pattern)]
    for path in pages:
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, place(path), content=text))
    linked = set(pages)
    for page in [file for file in files if file.is_documentation_page()]:
        for _, target in links(page.content_string, origin(page.src_uri)):
            if target not in linked and not inside(target) and (ROOT / target).is_file():
                linked.add(target)
                text = (ROOT / target).read_text(encoding="utf-8")
                files.append(File.generated(config, place(target), content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point the page's links to where things are on the site."""
    here = origin(page.file.src_uri)

    def moved(found: re.Match[str]) -> str:
        image, words, target, anchor = found.group(1, 2, 3, 4)
        path = resolved(here, target)
        if path is None:
            return found[0]
        if (ROOT / path).is_dir():
            return words
        if not (ROOT / path).is_file():
            raise PluginError(f"{here} links to {target}, which is not there")
        to = os.path.relpath(place(path), PurePosixPath(page.file.src_uri).parent)
        return f"{image}[{words}]({to}{anchor or ''})"

    return outside_fences(markdown, lambda prose: _LINK.sub(moved, prose))


def place(path: str) -> str:
    """Where a path of the repository is on the site."""
    if path == "README.md":
        return "index.md"
    if inside(path):
        return path.removeprefix("docs/")
    return f"repository/{path}" if path.endswith(".md") else f"source/{path}.txt"


def origin(src_uri: str) -> str:
    """The path in the repository of a page of the site; the inverse of `place`."""
    if src_uri == "index.md":
        return "README.md"
    if src_uri.startswith("repository/"):
        return src_uri.removeprefix("repository/")
    return f"docs/{src_uri}"


def inside(path: str) -> bool:
    """Whether MkDocs finds it by itself."""
    return path.startswith("docs/")


def resolved(here: str, target: str) -> str | None:
    """The path in the repository to which a link of the page `here` leads; None for an address."""
    if re.match(r"[a-z]+:", target):
        return None
    return os.path.normpath(PurePosixPath(here).parent / target)


def links(markdown: str, here: str) -> Iterator[tuple[str, str]]:
    """The words and the paths of a page's links within the repository."""
    for found in _LINK.finditer(_FENCE.sub("", markdown)):
        target = resolved(here, found[3])
        if target is not None:
            yield found[2], target


def outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    """The page with its prose changed and its code as it was."""
    parts, last = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [change(markdown[last : fence.start()]), fence[0]]
        last = fence.end()
    return "".join([*parts, change(markdown[last:])])
