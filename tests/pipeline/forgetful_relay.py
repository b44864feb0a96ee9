"""A relay whose scripts leave no marks, and so tell no sweep of what has ended: `relay serve`, broken.

python -m tests.pipeline.forgetful_relay serve
"""

from __future__ import annotations

from relay.cli import main
from relay.store.server import scripts
from tests.worlds.scripts.rules import replaced

RULE, BROKEN = "if not marking or #ids == 0 or are_abandoned() then return end", "if true then return end"

_source = scripts.source


def forgetful(name: str) -> str:
    """A script's text, without the one line."""
    return replaced(_source(name), RULE, BROKEN)


if __name__ == "__main__":
    scripts.source = forgetful  # type: ignore[assignment]
    main()
