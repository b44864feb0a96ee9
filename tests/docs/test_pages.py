"""The prose keeps up with the code: what it links to, names and tells people to type is there."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest
import yaml
from typer.main import get_command

from relay.cli.commands import app
from relay.settings.load import load
from relay.v1.delivery_service_pb2 import Outcome
from tests.docs import pages
from tests.docs.pages import ROOT, Block, Said

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.checkout

YAML = [block for block in pages.run_by(__file__) if block.language == "yaml"]


def ids(said: Block | Said) -> str:
    return f"{said.page}: {said.text[:40]}"


def test_every_block_is_run_or_says_why_not() -> None:
    """A block without a test that runs it fails here, with page and line."""
    assert pages.unaccounted(pages.blocks()) == []


def test_every_mark_says_what_it_has_to() -> None:
    assert pages.unexplained(pages.blocks()) == []


def test_every_module_runs_the_blocks_that_name_it() -> None:
    """It exists, and takes its blocks from `pages.run_by`, which knows no others."""
    for module in {block.run_by for block in pages.blocks()} - {"", pages.PROTOCOL}:
        assert (ROOT / module).is_file(), module
        assert "pages.run_by(__file__)" in (ROOT / module).read_text(encoding="utf-8"), module


def test_no_fence_escapes() -> None:
    """Indented, longer or with tildes: such fences would be blocks that nobody looks at."""
    for page in pages.pages():
        fences = re.findall(r"^\s*(?:>\s*)?(?:```|~~~)", pages.text(page), re.MULTILINE)
        assert len(fences) == 2 * len(pages.parsed(page, pages.text(page))), page


FORGED = """
```sql
SELECT 1
```

<!-- not run: needs a cluster -->
```console
$ kubectl get pods
```

<!-- not run -->
```console
$ kubectl get pods
```

<!-- run by: -->
```text
x
```

<!-- not run: not directly above -->

Words.

```text
x
```
"""


def test_a_block_that_nobody_runs_is_named() -> None:
    """With its line; and so is a mark without a reason."""
    forged = pages.parsed("x.md", FORGED)
    assert [said.partition(": ")[0] for said in pages.unaccounted(forged)] == ["x.md:2", "x.md:17", "x.md:25"]
    assert pages.unexplained(forged) == [
        "x.md:12: the comment needs words after `not run:`",
        "x.md:17: the comment needs words after `run by:`",
    ]


@pytest.mark.parametrize("block", YAML, ids=ids)
def test_settings_are_valid(block: Block, tmp_path: Path) -> None:
    config = tmp_path / "relay.yaml"
    config.write_text(block.text, encoding="utf-8")
    assert yaml.safe_load(block.text).keys() <= load(config, environ={}).model_dump().keys()


def test_links_lead_somewhere() -> None:
    """Files exist, and so do the headings in them."""
    lost = []
    for said in pages.links():
        target, _, anchor = said.text.partition("#")
        path = (ROOT / said.page).parent / target if target else ROOT / said.page
        page = path.resolve()
        if not page.exists() or (anchor and anchor not in pages.anchors(str(page.relative_to(ROOT)))):
            lost.append(said)
    assert lost == []


def test_named_files_exist() -> None:
    """In backticks: `relay/engine/delivery/leases.py`, `tests/lua`."""
    named = re.compile(r"(relay|lua|proto|tests|bench|chaos|docs|examples|tools)/[\w./*-]+")
    lost = [said for said in pages.code() if named.fullmatch(said.text) and not list(ROOT.glob(said.text))]
    assert lost == []


def test_named_tests_exist() -> None:
    """In backticks: `test_newest_intent_wins`."""
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"def (test_\w+)\(", tests))
    modules = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    named = re.compile(r"(test_\w+)(\.py)?")
    lost = [
        said
        for said in pages.code()
        if (found := named.fullmatch(said.text)) and found[1] not in (modules if found[2] else defined)
    ]
    assert lost == []


@pytest.mark.slow
def test_named_members_exist() -> None:
    """In backticks: `Poller.step`. A class that is none of ours is left alone."""
    named = re.compile(r"([A-Z]\w+)\.([a-z_]\w*)")
    lost = []
    for said in pages.code():
        if found := named.fullmatch(said.text):
            owner, member = found.groups()
            if member not in pages.members().get(owner, {member}):
                lost.append(said)
    assert lost == []


def test_commands_and_their_options_exist() -> None:
    """Whatever begins with `relay `, typed or mentioned."""
    group = get_command(app)
    assert hasattr(group, "commands")
    wrong = []
    by_itself = {option for parameter in group.params for option in parameter.opts}
    for said in pages.command_lines("relay"):
        name, *rest = shlex.split(said.text)
        if name in by_itself:  # an option of `relay` itself
            continue
        command = group.commands.get(name)
        while rest and hasattr(command, "commands"):
            if any(rest[0] in parameter.opts for parameter in command.params):  # and its value
                del rest[:2]
            else:
                command = command.commands.get(rest.pop(0))
        if command is None:
            wrong.append(said)
            continue
        known = {option for parameter in command.params for option in parameter.opts}
        wrong += [said for word in rest if word.startswith("--") and word not in known | {"--help"}]
    assert wrong == []


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wrong = [said for said in pages.command_lines("make") if said.text.split()[0] not in targets]
    assert wrong == []


def test_exit_codes_are_those_of_the_command_line() -> None:
    from relay.cli.terminal import exits

    codes = {exits.OK, exits.FAILURE, exits.BAD_INPUT, exits.NOT_FOUND, exits.UNAVAILABLE}
    codes |= {exits.HELD_BACK, exits.UNMET}
    table = (
        pages.text("docs/reference/command-line.md")
        .partition("| exit code | means |")[2]
        .partition("\n\n")[0]
    )
    assert {int(code) for code in re.findall(r"^\| (\d) \|", table, re.MULTILINE)} == codes


def test_the_outcomes() -> None:
    """Those of the API are those of the table, and other pages count them rightly."""
    names = {name.removeprefix("OUTCOME_") for name in Outcome.keys() if name != "OUTCOME_UNSPECIFIED"}  # noqa: SIM118
    table = pages.text("docs/explanation/failure.md").partition("## Outcomes")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| ([A-Z]+) \|", table, re.MULTILINE)) == names
    said = [
        found
        for page in pages.pages()
        for found in re.findall(r"(\w+)\]\([^)]*#outcomes\)", pages.text(page))
    ]
    assert set(said) & {"two", "three", "four", "five", "six", "seven"} == {"five"}
    assert len(names) == 5


def test_the_readme_is_short() -> None:
    """At most 900 words, the first Python within the first screen, and about twenty lines of it."""
    page = pages.text("README.md")
    assert len(page.split()) <= 900
    first = next(block for block in pages.parsed("README.md", page) if block.language == "python")
    assert first.line <= 12
    assert len(first.text.splitlines()) <= 24


def test_each_page_of_the_docs_is_of_one_kind() -> None:
    """Tutorial, how-to, reference or explanation; decisions and figures have folders of their own. The table
    of faults, which others link to, has the shortest name."""
    folders = {page.split("/")[1] for page in pages.pages() if page.startswith("docs/")}
    kinds = {"tutorial", "how-to", "reference", "explanation", "decisions", "performance"}
    assert folders == {*kinds, "reliability.md"}
