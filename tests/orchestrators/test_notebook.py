"""The notebook of examples/notebook, run by Jupyter's own kernel beside a relay."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.orchestrators.conftest import ORCHESTRATORS
from tests.worlds.relay.processes import ROOT
from tests.worlds.relay.stage import Stage

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.checkout, pytest.mark.timeout(900)]

RUN = """
import sys
import nbformat
from nbclient import NotebookClient
book = nbformat.read("examples/notebook/from-csv-to-audit.ipynb", as_version=4)
NotebookClient(book, timeout=600).execute()
nbformat.write(book, sys.argv[1])
"""


def test_from_a_csv_to_an_audit(stage: Stage, environ: dict[str, str], tmp_path: Path) -> None:
    """Each reminder came, the audit proves it, and there is a plot."""
    relay = stage.relay()
    told = {
        **environ,
        "RELAY_TARGET": relay.target,
        "RELAY_REDIS__URL": stage.server.url,
        "JUPYTER_PLATFORM_DIRS": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "TMPDIR": str(tmp_path),
    }
    out = tmp_path / "done.ipynb"
    done = subprocess.run(
        [str(ORCHESTRATORS), "-c", RUN, str(out)],
        cwd=ROOT,
        env=told,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cells = [cell for cell in json.loads(out.read_text())["cells"] if cell["cell_type"] == "code"]
    shown = [output["data"] for cell in cells for output in cell["outputs"] if "data" in output]
    texts = ["".join(each.get("text/plain", "")) for each in shown]
    assert "40" in texts
    assert any("'proved'" in text for text in texts), texts
    assert sum("image/png" in each for each in shown) == 1
