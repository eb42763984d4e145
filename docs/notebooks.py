"""Run the notebooks of the site and keep their outputs: `make notebooks`, or `python docs/notebooks.py NAME …`.

Outputs are committed. So that they change only when what they show changes, everything that differs from run to run
(times, counters, machine names) is left out of the files.
"""

from __future__ import annotations

import base64
import io
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image

HERE = Path(__file__).parent
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def names() -> list[str]:
    """All notebooks, such as "tutorials/first-memory"."""
    found = [path.relative_to(HERE) for path in HERE.rglob("*.ipynb")]
    return sorted(path.with_suffix("").as_posix() for path in found if path.parts[0][0] not in "_.")


def read(name: str) -> Any:
    """A notebook as it is kept."""
    return nbformat.read(HERE / f"{name}.ipynb", as_version=4)


def run(name: str, **parameters: Any) -> Any:
    """A notebook after running it in a new folder, with other values in its cell of parameters if some are given."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    notebook = read(name)
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", []):
            cell.source += "".join(f"\n{key} = {value!r}" for key, value in parameters.items())
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "docs" / "tutorials"  # where ../../examples is found
        place.mkdir(parents=True)
        (Path(folder) / "examples").symlink_to(HERE.parent / "examples")
        client = NotebookClient(notebook, timeout=3600, kernel_name="python3", resources={"metadata": {"path": place}})
        client.execute()
    return tidy(notebook)


def tidy(notebook: Any) -> Any:
    """The notebook without what differs from run to run."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                output.pop("execution_count", None)
                if output.output_type == "execute_result":
                    output.output_type = "display_data"
                if "image/png" in output.get("data", {}):
                    output.data["image/png"] = smaller(output.data["image/png"])
                    output.data.pop("text/plain", None)
    return notebook


def smaller(png: str) -> str:
    """A figure with at most 64 colours, base64 to base64."""
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    packed = io.BytesIO()
    picture.quantize(64).save(packed, "png", optimize=True)
    return base64.b64encode(packed.getvalue()).decode()


def text(notebook: Any) -> list[str]:
    """The lines that a notebook printed, blank ones left out."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    lines = [line for output in outputs if "text" in output for line in output.text.splitlines()]
    return [line for line in lines if line.strip()]


def main() -> None:
    """Run some notebooks, or all, and keep their outputs."""
    for name in sys.argv[1:] or names():
        print(name, flush=True)
        nbformat.write(run(name), HERE / f"{name}.ipynb")


if __name__ == "__main__":
    main()
