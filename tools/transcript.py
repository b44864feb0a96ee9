"""Keep the transcript in `docs/reference/protocol.md` true: record what relay and application say.

Plays `tools/play.py` and writes each message into the page, below the comment `<!-- transcript: NAME -->`
of its part. `--check` writes nothing, and fails where the page tells another story. Times, tokens and nonces
differ with every run: they count only as far as they are the same as before or not.

Run it from the root: `python -m tools.transcript`.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.play import record

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "protocol.md"


def blocks(page: str) -> Iterator[tuple[str, int, int]]:
    """Name, begin and end of each part's text in the page."""
    for found in re.finditer(r"<!-- transcript: (\S+) -->\n+```text\n(.*?)```", page, re.DOTALL):
        yield found[1], found.start(2), found.end(2)


def plain(text: str) -> list[str]:
    """One line a message, and of times, tokens and nonces only whether they came before."""
    known: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        return found[1] + known.setdefault(found[2], f"#{len(known) + 1}") + found[3]

    text = re.sub(r'"2026-01-01T00:00:05Z"|"1767225605000000"', '"(the due time)"', text)
    text = re.sub(r'"\d{4}-\d\d-\d\dT[^"]*Z"|"\d{16}"', '"(a time)"', text)
    text = re.sub(r'(")([A-Za-z0-9+/]{24})(")', name, text)
    text = re.sub(r'(/)([0-9a-f]{32})(")', name, text)
    lines = re.split(r"\n(?=[→←✂])", text.strip())
    return [re.sub(r"\s+", " ", re.sub(r"(?<=[\[{])\s+|\s+(?=[\]}])", "", line)) for line in lines]


def differences(page: str, parts: dict[str, list[str]]) -> list[str]:
    """Where the page does not tell what was recorded; empty if it does."""
    told = {name: page[start:end] for name, start, end in blocks(page)}
    lost = [f"the page has no part {name!r}" for name in parts.keys() - told.keys()]
    lost += [f"nothing was recorded for the part {name!r}" for name in told.keys() - parts.keys()]
    names = [name for name in told if name in parts]
    # In one piece: a token of one part comes again in the next.
    page_says = plain("\n".join(told[name].strip() for name in names))
    run_says = plain("\n".join(line for name in names for line in parts[name]))
    return lost + list(difflib.unified_diff(page_says, run_says, "the page", "this run", lineterm="", n=1))


def rewritten(page: str, parts: dict[str, list[str]]) -> str:
    for name, start, end in reversed(list(blocks(page))):
        page = page[:start] + "\n".join(parts[name]) + "\n" + page[end:]
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description="Record the transcript of docs/reference/protocol.md.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where the page drifts")
    check = parser.parse_args().check
    parts = asyncio.run(record())
    page = PAGE.read_text(encoding="utf-8")
    lost = differences(page, parts)
    if check and lost:
        print("docs/reference/protocol.md drifts from the wire; run: python -m tools.transcript")
        print(*lost, sep="\n")
        sys.exit(1)
    if not check:
        PAGE.write_text(rewritten(page, parts), encoding="utf-8")


if __name__ == "__main__":
    main()
