"""The notebook of examples/notebook: executed by Jupyter's own client, beside a real relay."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.orchestrators.world import execute, variables
from tests.worlds.relay.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.worlds.relay.stage import Stage

pytestmark = [pytest.mark.checkout, pytest.mark.slow, pytest.mark.timeout(1800)]

NOTEBOOK = ROOT / "examples" / "notebook" / "from-a-csv-to-an-audit.ipynb"


def test_it_is_kept_without_results() -> None:
    """They differ after each run, in figures, instants and pictures, and would hide a change of the text."""
    text = NOTEBOOK.read_text(encoding="utf-8")
    found = json.loads(text)
    cells = [cell for cell in found["cells"] if cell["cell_type"] == "code"]
    assert {(cell["execution_count"], len(cell["outputs"])) for cell in cells} == {(None, 0)}
    assert all(cell["metadata"] == {} for cell in found["cells"])
    assert found["metadata"].keys() == {"kernelspec", "language_info"}
    assert text == json.dumps(found, indent=1, ensure_ascii=False) + "\n", "as Jupyter writes it"


@pytest.mark.chaos
def test_it_goes_from_a_csv_file_to_an_audit(stage: Stage, tmp_path: Path) -> None:
    """Timers of the past: they fall due as they are loaded, and nobody waits for them."""
    settings = {
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "jupyter"),
        "LEAD_SECONDS": "-60",
        "MPLCONFIGDIR": str(tmp_path / "matplotlib"),
        "RELAY_REDIS__URL": stage.server.url,
        "RELAY_TARGET": stage.relay().target,
    }
    cells = execute("in_jupyter.py", [str(NOTEBOOK)], tmp_path, {**variables(tmp_path), **settings})
    said = "\n".join("\n".join((cell["said"], *cell["plain"])) for cell in cells.values())
    assert "297 timers were delivered by " in said
    assert re.findall(r"exit code (\d)", said) == ["0", "0", "0"], said
    assert "is 'soon', which is not a time" in said
    assert "'proved'" in said
    assert len(re.findall(r" proved +\d+ +0\b", said)) == 6, said
    assert [cell["pictures"] for cell in cells.values() if cell["pictures"]] == [1, 1, 1]
    assert (tmp_path / "audit" / "report.html").exists()
