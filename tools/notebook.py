"""Write examples/notebook/use-in-a-notebook.ipynb from docs/guides/use-in-a-notebook.md.

Blocks of Python become cells of code, everything else becomes text. With `--check`, compare it instead.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "guides" / "use-in-a-notebook.md"
NOTEBOOK = ROOT / "examples" / "notebook" / "use-in-a-notebook.ipynb"
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def cells(page: str) -> list[dict[str, Any]]:
    """Return the cells of a page."""
    parts = re.split(r"^```python\n(.*?)^```$", page, flags=re.M | re.S)
    found = [_cell(number, part.strip()) for number, part in enumerate(parts)]
    return [cell for cell in found if cell["source"]]


def _cell(number: int, text: str) -> dict[str, Any]:
    code: dict[str, Any] = {"execution_count": None, "outputs": []} if number % 2 else {}
    kind = "code" if number % 2 else "markdown"
    return {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True), **code}


def notebook() -> str:
    """Return the notebook as JSON."""
    metadata = {"kernelspec": _KERNEL, "language_info": {"name": "python"}}
    book = {"cells": cells(PAGE.read_text("utf-8")), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the notebook, or with `--check` compare it."""
    if "--check" in sys.argv:
        return int(NOTEBOOK.read_text("utf-8") != notebook())
    NOTEBOOK.parent.mkdir(exist_ok=True)
    NOTEBOOK.write_text(notebook(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
