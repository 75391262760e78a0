"""What the scripts of an Agent Skill import is found without running them, and proposed as a requirements file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.skills.agentskills import parse_agent_skill, to_reyn
from reyn.skills.imports import requirements_text, third_party_imports

FRONT = b"---\nname: office\ndescription: Works with documents.\n---\nUse scripts/fill.py.\n"
SCRIPT = b"""#!/usr/bin/env python3
import json, os.path, pypdf
from PIL import Image
from openpyxl.styles import Font
from common.fields import names
from .near import other
try:
    import yaml
except ImportError:
    yaml = None

def late():
    import numpy as np
"""


def test_only_packages_are_listed_with_their_names_in_the_index():
    files = {
        "scripts/fill.py": SCRIPT,
        "scripts/common/fields.py": b"import cv2, fitz, docx",
        "scripts/broken.py": b"def(",
    }
    assert third_party_imports(files) == {
        "PIL": "pillow",
        "cv2": "opencv-python-headless",
        "docx": "python-docx",
        "fitz": "pymupdf",
        "numpy": "numpy",
        "openpyxl": "openpyxl",
        "pypdf": "pypdf",
        "yaml": "pyyaml",
    }


@pytest.mark.parametrize(
    ("name", "package"),
    [("bs4", "beautifulsoup4"), ("sklearn", "scikit-learn"), ("pptx", "python-pptx"), ("lxml", "lxml")],
)
def test_well_known_imports_are_mapped(name, package):
    assert third_party_imports({"a.py": f"import {name}.part".encode()}) == {name: package}


def test_the_conversion_proposes_a_requirements_file():
    conversion = to_reyn(
        parse_agent_skill({"SKILL.md": FRONT, "scripts/fill.py": SCRIPT, "scripts/common/fields.py": b""})
    )
    proposed = conversion.files["requirements.in"].decode().splitlines()[1:]
    assert proposed == ["numpy", "openpyxl", "pillow", "pypdf", "pyyaml"]
    [note] = [one for one in conversion.unconverted if "import packages" in one]
    assert "`PIL` (pillow)" in note
    assert "reyn/local/office/requirements.txt" in note


def test_without_packages_nothing_is_proposed():
    conversion = to_reyn(parse_agent_skill({"SKILL.md": FRONT, "scripts/a.py": b"import json, b", "scripts/b.py": b""}))
    assert conversion.imports == {}
    assert "requirements.in" not in conversion.files


def test_an_import_that_several_packages_share_is_a_remark():
    assert requirements_text({"google": ""}).splitlines()[-1] == "# the package of `google` is not known"


@given(st.binary(max_size=200))
def test_any_file_can_be_looked_at(content):
    for name, package in third_party_imports({"scripts/x.py": content}).items():
        assert name.isidentifier()
        assert package == "" or "\n" not in package
