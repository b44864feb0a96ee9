"""Executes a notebook, and prints what each of its cells puts out.

python in_jupyter.py NOTEBOOK    with the Python of .venv-orchestrators
"""

from __future__ import annotations

import json
import sys

import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
NotebookClient(notebook, timeout=1200, kernel_name="python3").execute()
for cell in notebook.cells:
    if cell.cell_type == "code":
        texts = [each.text for each in cell.outputs if each.output_type == "stream"]
        data = [each.data for each in cell.outputs if each.output_type in ("display_data", "execute_result")]
        told = {"said": "".join(texts), "plain": [each.get("text/plain", "") for each in data]}
        print("RUN", json.dumps({cell.id: {**told, "pictures": sum("image/png" in each for each in data)}}))
