"""The work of three common kinds of Agent Skills, on real files: fill a form, read a spreadsheet, resize an image."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reyn import SyncRuntime
from reyn.journal import MemoryJournal, decode, kinds
from reyn.packages.making import make_environment
from reyn.sandbox.backends import BACKENDS
from reyn.skills.agentskills import parse_agent_skill, to_reyn
from reyn.testing import ScriptedModel
from tests.packages.support import declared, seal
from tests.support import act, finish

PINS = Path(__file__).parents[2] / "requirements" / "office.txt"
USABLE = [one.name for one in BACKENDS if not one.problem]
pytestmark = pytest.mark.skipif(not USABLE and not os.environ.get("CI"), reason="no process sandbox")

FILL = """
import sys
from pypdf import PdfReader, PdfWriter

source, target, name = sys.argv[1:]
writer = PdfWriter(clone_from=source)
writer.update_page_form_field_values(writer.pages[0], {"name": name}, auto_regenerate=False)
writer.write(target)
print(PdfReader(target).get_form_text_fields())
"""
SHEET = """
import sys
from openpyxl import load_workbook

sheet = load_workbook(sys.argv[1], data_only=True).active
rows = list(sheet.iter_rows(min_row=2, values_only=True))
print({"rows": len(rows), "total": sum(row[1] for row in rows)})
"""
IMAGE = """
import sys
from PIL import Image

source, target, side = sys.argv[1:]
with Image.open(source) as image:
    image.thumbnail((int(side), int(side)))
    image.save(target)
    print(image.size)
"""
FORM = """
from pypdf import PdfWriter
from pypdf.generic import ArrayObject, DictionaryObject, FloatObject, NameObject, TextStringObject

writer = PdfWriter()
page = writer.add_blank_page(200, 100)
field = DictionaryObject({
    NameObject("/Type"): NameObject("/Annot"), NameObject("/Subtype"): NameObject("/Widget"),
    NameObject("/FT"): NameObject("/Tx"), NameObject("/T"): TextStringObject("name"),
    NameObject("/V"): TextStringObject(""), NameObject("/DA"): TextStringObject("/Helv 10 Tf 0 g"),
    NameObject("/Rect"): ArrayObject([FloatObject(n) for n in (10, 10, 190, 30)]),
})
reference = writer._add_object(field)
page[NameObject("/Annots")] = ArrayObject([reference])
form = DictionaryObject({NameObject("/Fields"): ArrayObject([reference])})
writer._root_object[NameObject("/AcroForm")] = writer._add_object(form)
writer.write("form.pdf")

from openpyxl import Workbook
book = Workbook()
for row in (("item", "price"), ("tea", 3), ("soup", 7)):
    book.active.append(row)
book.save("prices.xlsx")

from PIL import Image
Image.new("RGB", (400, 200), "teal").save("photo.png")
"""
"""Writes the files that the scripts work on."""


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    """A project with the environment `office`, made from the pinned requirements, and three files."""
    root = tmp_path_factory.mktemp("office")
    shutil.copy(PINS, root / "office.txt")
    (root / "reyn.yaml").write_text("environments: {office: {requirements: office.txt}}\n")
    probe = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest"]
    probe += [str(root / "probe"), "--require-hashes", "-r", str(PINS)]
    if not os.environ.get("CI") and subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no package index can be reached")
    make_environment(declared(root), "office")
    program = declared(root).find("office").installation.program
    subprocess.run([program, "-c", FORM], check=True, cwd=root)
    return root


CASES = {
    "pdf": (FILL, ["form.pdf", "OUT/filled.pdf", "Ada"], "{'name': 'Ada'}", "filled.pdf"),
    "spreadsheet": (SHEET, ["prices.xlsx"], "{'rows': 2, 'total': 10}", ""),
    "image": (IMAGE, ["photo.png", "OUT/small.png", "100"], "(100, 50)", "small.png"),
}


@pytest.mark.parametrize("backend", USABLE)
@pytest.mark.parametrize("kind", CASES)
def test_a_script_of_an_agent_skill_works_on_a_real_file(office, tmp_path, kind, backend):
    seal(office)
    script, arguments, printed, written = CASES[kind]
    root = tmp_path / "project"
    shutil.copytree(office, root, symlinks=True)
    front = f"---\nname: {kind}\ndescription: Works on a file.\n---\nRun the script.\n"
    conversion = to_reyn(parse_agent_skill({"SKILL.md": front.encode(), "scripts/work.py": script.encode()}))
    assert conversion.imports
    for file, content in conversion.files.items():
        path = root / "reyn" / "local" / kind / file
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content.decode()
        path.write_text(text.replace("entry:", "environment: office\nentry:", 1) if file == "skill.md" else text)
    place = root / ".reyn" / "workspace" / "r"
    argv = [
        "python3",
        f"reyn/local/{kind}/files/scripts/work.py",
        *(one.replace("OUT", str(place)) for one in arguments),
    ]
    op = {"kind": "sandboxed_exec", "argv": argv, "read_paths": [f"reyn/local/{kind}/files", arguments[0]]}
    op |= {"write_paths": ["workspace:"]} if written else {}
    journal = MemoryJournal()
    rules = {"exec": [{"allow": ["python3"]}], "file.read": [{"allow": "reyn/"}]}
    options = {"sandbox": {"backend": backend}, "permissions": rules, "trust": True, "journal": journal}
    with SyncRuntime.open(root, model=ScriptedModel([act(op), finish("done", "result")]), **options) as rt:
        result = rt.run(kind, "Do it.", run_id="r")
        assert result.status == "finished", result.reason
        [done] = [body for body in map(decode, rt.runs.events("r")) if isinstance(body, kinds.OpCompleted)]
        output = json.loads(journal.blob(done.result))
    assert done.status == "ok", output
    assert output["stdout"].strip() == printed
    assert not written or (place / written).stat().st_size > 0
