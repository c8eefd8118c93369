"""The notebooks: run as in Jupyter, and kept with outputs that any viewer shows.

`python -m tests.notebook.notebooks` runs all of them and writes them anew.
"""

import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
VIEW = "application/vnd.jupyter.widget-view+json"


def read(path):
    return nbformat.read(path, as_version=4)


def executed(notebook, seconds=120):
    """Runs a notebook from top to bottom in a kernel of its own, on one core; a cell that fails raises."""
    settings = {"timeout": seconds, "kernel_name": "python3", "store_widget_state": False, "coalesce_streams": True}
    client = NotebookClient(notebook, **settings)
    client.execute(cwd=str(FOLDER), env={**os.environ, "OMP_NUM_THREADS": "1"})
    return notebook


def outputs(notebook):
    """Gives the outputs of all cells."""
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def kept(notebook):
    """Leaves what lasts: pictures and words. A view lives in a kernel, and a viewer without one would say so."""
    for output in outputs(notebook):
        output.get("data", {}).pop(VIEW, None)
    for cell in notebook.cells:
        cell.metadata = {}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = nbformat.from_dict({"kernelspec": kernel, "language_info": {"name": "python"}})
    return notebook


if __name__ == "__main__":
    for path in NOTEBOOKS:
        nbformat.write(kept(executed(read(path))), path)
        print(path.name, f"{path.stat().st_size / 2**20:.2f} MiB")
