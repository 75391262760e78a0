"""The packages that Python scripts import, found without running them.

What an import is called and what the package is called differ for well-known ones; a table has those. For any other
name, the package is assumed to have the name of the import.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from reyn.skills.modules import parse_module

_PACKAGES = {
    "attr": "attrs",
    "barcode": "python-barcode",
    "bs4": "beautifulsoup4",
    "cairosvg": "CairoSVG",
    "charset_normalizer": "charset-normalizer",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "google": "",
    "imageio_ffmpeg": "imageio-ffmpeg",
    "jwt": "PyJWT",
    "magic": "python-magic",
    "markdown_it": "markdown-it-py",
    "mpl_toolkits": "matplotlib",
    "OpenSSL": "pyOpenSSL",
    "pdf2image": "pdf2image",
    "pdfminer": "pdfminer.six",
    "PIL": "pillow",
    "pkg_resources": "setuptools",
    "playwright": "playwright",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "PyPDF2": "PyPDF2",
    "pywintypes": "pywin32",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "socks": "PySocks",
    "win32com": "pywin32",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
"""The package of an import whose name is another one; empty if several packages share it."""


def third_party_imports(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the packages that the Python files of a folder import, by the name of the import.

    Args:
        files: All files of the folder, by path. Their own modules are no packages.

    Returns:
        The package of each import; empty if it is not known.
    """
    scripts = {path: content for path, content in files.items() if path.endswith(".py")}
    own = {part for path in scripts for part in (PurePosixPath(path).stem, *PurePosixPath(path).parts[:-1])}
    names = {name for content in scripts.values() for name in _imported(content)}
    return {name: _PACKAGES.get(name, name) for name in sorted(names - own - sys.stdlib_module_names)}


def requirements_text(imports: Mapping[str, str]) -> str:
    """Return the proposal of a requirements file, without versions."""
    known = sorted({package for package in imports.values() if package}, key=str.lower)
    unknown = [name for name, package in imports.items() if not package]
    lines = ["# The packages that the scripts import. Check the names, and add what they need besides.", *known]
    return "".join(f"{line}\n" for line in (*lines, *(f"# the package of `{name}` is not known" for name in unknown)))


def _imported(content: bytes) -> Iterator[str]:
    """Yield the first part of the name of each import of a script. One that cannot be parsed has none."""
    try:
        tree = parse_module(content.decode("utf-8-sig"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
