"""The prose of the pipeline: its Python imports what is there (tests/docs looks at the rest)."""

from __future__ import annotations

import pytest

from tests.docs import pages

BLOCKS = [block for block in pages.blocks("python") if "pyspark" in block.text]


@pytest.mark.checkout
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.page)
def test_examples_import_what_is_there(block: pages.Block) -> None:
    imports = [line for line in block.text.splitlines() if line.startswith(("import ", "from "))]
    exec("\n".join(imports), {})
