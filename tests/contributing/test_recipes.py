"""Each recipe of CONTRIBUTING.md works on a copy of the package without any further edit."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import reyn
from tests.support import act, finish, write_skill

PACKAGE = Path(reyn.__file__).parent


class Copy:
    """An editable copy of the package, and a project that uses it."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "src" / "reyn"
        self.project = folder / "project"
        self.project.mkdir()
        shutil.copytree(PACKAGE, self.source)  # with its bytecode, of which only what a recipe changes is made anew

    def add(self, file: str, text: str) -> None:
        path = self.source / file
        assert not path.exists()
        path.write_text(text)

    def change(self, file: str, pattern: str, replacement: str) -> None:
        path = self.source / file
        text, count = re.subn(pattern, lambda _: replacement, path.read_text(), count=1, flags=re.MULTILINE)
        assert count == 1, f"{file} does not hold {pattern!r}"
        path.write_text(text)

    def reyn(self, *args: str) -> str:
        env = {**os.environ, "PYTHONPATH": str(self.source.parent)}
        done = subprocess.run(
            [sys.executable, "-m", "reyn", *args],
            cwd=self.project, env=env, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, *answers: dict | str, model: str = "scripted:answers.jsonl") -> str:
        (self.project / "answers.jsonl").write_text("\n".join(json.dumps(answer) for answer in answers))
        (self.project / "reyn.yaml").write_text(f"model: {model}\n")
        self.reyn("lint", "try")
        output = self.reyn("run", "try", '{"text": "in"}', "--run-id", "r")
        self.reyn("verify", "r")
        self.reyn("replay", "r")
        return output


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


OP = """
from reyn.ops.op import Call, Env, Plan, Result
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, result, text

FORM = OpForm(None, "Reverse a text.", arguments("reverse", None, {"text": text(100)}), "pure",
              result("reverse", None, {"text": {"type": "string"}}), {"kind": "reverse", "text": "abc"})

class ReverseOp:
    spec = OpSpec("reverse", FORM.summary, "pure", forms=(FORM,))

    def plan(self, call: Call, env: Env) -> Plan:
        return Plan("pure")

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        return call.ok(text=call.args["text"][::-1])
"""


def test_an_op(copy: Copy):
    copy.add("ops/reverse.py", OP)
    copy.change("ops/table.py", r"^    PythonOp\(\),$", "    PythonOp(),\n    ReverseOp(),")
    imported = "from reyn.ops.reverse import ReverseOp\nfrom reyn.ops.op import"
    copy.change("ops/table.py", r"^from reyn.ops.op import", imported)
    write_skill(copy.project, "try", {"a": ["end"]}, ops={"a": "reverse"})
    assert "reverse abc · ok" in copy.run(act({"kind": "reverse", "text": "abc"}), finish())
    assert '"text":"cba"' in copy.reyn("frame", "r")
    assert "# reverse" in copy.reyn("ops", "reverse")


MODEL = """
from reyn.models.protocol import ModelAnswer

class EchoModel:
    name = "echo"

    async def complete(self, request):
        return ModelAnswer(%r)
"""


def test_a_model(copy: Copy):
    copy.add("models/echo.py", MODEL % json.dumps(finish("echoed")))
    case = (
        '        case "echo":\n            from reyn.models.echo import EchoModel\n\n            return EchoModel()\n'
    )
    case += "        case _ if adapter in BUILT_IN_ADAPTERS:"
    copy.change("models/catalog.py", r"^        case _ if adapter in BUILT_IN_ADAPTERS:", case)
    copy.change(
        "config/models.py", r'^BUILT_IN_ADAPTERS = .*"local",', 'BUILT_IN_ADAPTERS = frozenset(("echo", "local",'
    )
    write_skill(copy.project, "try", {"a": ["end"]})
    assert '"text": "echoed"' in copy.run(model="echo:1")


RULE = """
def shouting(loaded, vocabulary):
    document = loaded.folder.read("skill.md")
    for name, phase in loaded.partial.phases.items() if loaded.partial and document else ():
        if phase.instructions.isupper():
            yield document.finding(codes.SHOUTING, f"the instructions of `{name}` are shouted", severity="warning")
"""


def test_a_lint_rule(copy: Copy):
    path = copy.source / "lint" / "instructions.py"
    path.write_text(path.read_text() + RULE)
    copy.change(
        "lint/check.py", r"^    instructions.literals,$", "    instructions.literals,\n    instructions.shouting,"
    )
    added = (
        'SHOUTING = finding_code("RYN199: Instructions in capitals.", "Write them in small letters.")\nUNKNOWN_KEY ='
    )
    copy.change("errors/codes.py", r"^UNKNOWN_KEY =", added)
    folder = write_skill(copy.project, "try", {"a": ["end"]})
    phase = folder / "phases" / "a.md"
    phase.write_text(phase.read_text().replace("Do what a does.", "DO IT."))
    assert "RYN199 warning: the instructions of `a` are shouted" in copy.reyn("lint", "try")


STEP = """class Count(Step, frozen=True, tag="count"):
    TRUST: ClassVar[TrustClasses] = trust_classes(plain="over")

    over: str


AnyStep = RunSkill | Count |"""


def test_a_step(copy: Copy):
    copy.change("skills/step_types.py", r"^AnyStep = RunSkill \|", STEP)
    case = "        case Count(over=over):\n            return len(look_up(artifact, over))\n        case RunOp():"
    copy.change("kernel/visit/steps.py", r"^        case RunOp\(\):", case)
    imported = "from reyn.skills.step_types import Count\nfrom reyn.skills.step_types import"
    copy.change("kernel/visit/steps.py", r"^from reyn.skills.step_types import", imported)
    step = "preprocessor:\n  - count: {over: data.text, into: data.length}\n"
    write_skill(copy.project, "try", {"a": ["end"]}, phase_keys={"a": step})
    copy.run(finish())
    assert "length: 2" in copy.reyn("frame", "r")


EVENT = '''

@event("note_taken", v=1, origin="derived")
class NoteTaken(Body, frozen=True):
    """A note about a visit."""

    phase: str
'''


def test_an_event(copy: Copy):
    path = copy.source / "journal" / "kinds" / "visit.py"
    path.write_text(path.read_text() + EVENT)
    rule = (
        "def on_note_taken(state, body):\n    return state.with_warning(f'note: {body.phase}')\n\n\n"
        "_RULES: dict[type[Body], Callable[[RunState, Any], RunState]] = {\n    kinds.NoteTaken: on_note_taken,"
    )
    copy.change("kernel/core/run_state.py", r"^_RULES: .* = \{$", rule)
    started = "        tape.emit(kinds.PhaseStarted(move.phase, move.visit, move.input, phase.transcript))\n"
    emitted = f"{started}        tape.emit(kinds.NoteTaken(move.phase))\n"
    copy.change("kernel/visit/compiled_skill.py", f"^{re.escape(started)}", emitted)
    write_skill(copy.project, "try", {"a": ["end"]})
    assert "note: a" in copy.run(finish())
    assert "note_taken" in copy.reyn("events", "r")
