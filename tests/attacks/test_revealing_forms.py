"""No form of an op tells a model about files that a rule keeps it from reading.

The attacker is a model that may write where it may not read. The oracle is the result of the same call in projects that
differ only in the restricted file: where results differ, the call tells something about the file.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from reyn.ops import Call, Denied, Env, Plan
from reyn.ops.budget import OpFailed
from reyn.ops.execution import plan_op
from reyn.permissions import Gate, NeedsApproval, Policy
from reyn.permissions.rules import parse_requests, parse_rules
from reyn.sandbox.backends import BACKENDS
from reyn.vocabulary import PERMISSIONS
from reyn.workspace import RecordedFiles, Roots
from tests.kernel.support import Project
from tests.ops.test_skill_drafts import Approving
from tests.support import VOCABULARY, act, finish, write_skill

SECRET = "output/hr/salary.md"
CONTENTS = (None, "Ada 91250\n", "---\ntitle: Ada\n---\nGrace 88000\n")
"""What is in the restricted file; `None` if there is none."""
PATHS = {"path", "pattern", "output_path", "folders"}
GUESSES = {"old_string": "Ada 91250", "new_string": "Ada 91250", "query": "Ada", "content": "Ada 91250\n"}


def _calls(*paths: str) -> list[dict[str, Any]]:
    """Return calls of every form that names a file or a folder, each naming one of some paths."""
    found = []
    for form in (form for spec in VOCABULARY.ops for form in spec.forms):
        fields = form.arguments["properties"]
        guesses = {one: guess for one, guess in GUESSES.items() if one in fields} | (
            {"pattern": "Ada"} if form.op == "grep" else {}
        )
        for name in sorted((fields.keys() & PATHS) - guesses.keys()):
            for path in paths:
                value = [path] if fields[name].get("type") == "array" else path
                found.append(form.example | guesses | {name: value})
    return found


CALLS = _calls(SECRET, "output/hr")


def _results(
    root: Path,
    content: str | None,
    rule: dict[str, Any],
    calls: list[dict[str, Any]] = CALLS,
    secrets: tuple[str, ...] = (SECRET,),
    **options: Any,
) -> list[tuple[str, Any]]:
    """Return the status of the run and the result of each call, in a project with these restricted files."""
    found: list[tuple[str, Any]] = []
    permissions = {"file.read": [rule], "exec": "allow"}
    for number, call in enumerate(calls):
        shutil.rmtree(root / "output", ignore_errors=True)
        (root / "output/docs").mkdir(parents=True)
        (root / "output/docs/a.md").write_text("Ada\n")
        for secret in secrets:
            (root / secret).parent.mkdir(parents=True, exist_ok=True)
            (root / secret).unlink(missing_ok=True)
            if content is not None:
                (root / secret).write_text(f"---\nname: pay\n---\n{content}" if "memory" in secret else content)
        project = Project(root)
        run = project.run("s", [act(call), finish()], permissions=permissions, run_id=f"k{number}", **options)
        found.append((run.status, project.results(f"k{number}")))
    return found


def test_the_calls_are_of_every_form_that_names_files():
    assert {(call["kind"], call.get("op")) for call in CALLS} >= {
        *(("file", op) for op in ("read", "write", "edit", "delete", "glob", "grep", "regenerate_index")),
        ("recall", None),
    }


@pytest.mark.parametrize("effect", ["deny", "ask"])
def test_no_result_depends_on_a_file_that_may_not_be_read(tmp_path: Path, effect: str):
    kinds = sorted({call["kind"] for call in CALLS})
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": ", ".join(kinds)})
    worlds = [_results(tmp_path, content, {effect: "output/hr/"}) for content in CONTENTS]
    for call, *results in zip(CALLS, *worlds, strict=True):
        assert all(one == results[0] for one in results), call


def test_an_approval_of_one_path_tells_nothing_about_another_of_the_same_rule(tmp_path: Path):
    """One rule asks about a folder and about other files; the call names the folder, and a person approves it."""
    calls = _calls("output/docs", "output/docs/a.md", ".")
    program = {"kind": "sandboxed_exec", "argv": ["/bin/cat", SECRET, "output/docs/a.md"]}
    if not all(backend.problem for backend in BACKENDS):
        calls += [program | {"read_paths": paths} for paths in ([".", "output/docs"], ["output", "output/docs/a.md"])]
    kinds = sorted({call["kind"] for call in calls})
    keys = "permissions: {memory: true, exec: true}\n"
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": ", ".join(kinds)}, skill_keys=keys)
    secrets = (SECRET, "reyn/memory/pay.md")
    rule, person = {"ask": ["output/docs/", *secrets]}, Approving()
    worlds = [_results(tmp_path, content, rule, calls, secrets, people=person) for content in CONTENTS[1:]]
    assert len(person.asked) > len(calls)
    for call, *results in zip(calls, *worlds, strict=True):
        assert all(one == results[0] for one in results), call


def test_an_edit_of_a_file_that_may_be_read_needs_no_approval(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"})
    (tmp_path / "output").mkdir()
    (tmp_path / "output/notes.md").write_text("draft\n")
    project, edit = Project(tmp_path), next(call for call in CALLS if call.get("op") == "edit")
    edit |= {"path": "output/notes.md", "old_string": "draft", "new_string": "final"}
    project.run("s", [act(edit), finish()], permissions={"file.read": [{"deny": "output/hr/"}]})
    assert project.results()[0]["status"] == "ok"
    assert (tmp_path / "output/notes.md").read_text() == "final\n"


NOTE, COMMON = (
    {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]} for name in ("text", "title")
)
STEPS = """permissions:
  python:
    - {module: ./m.py, function: f}
postprocessor:
  output_schema: note
  steps:
    - python: {module: ./m.py, function: f, into: data.text}
    - run_skill: {skill: inner, into: data.inner}
"""
REPORTS = ("lint", "skill_graph", "skill_try")
PARTS = {
    "pay/skill.md": ("name: pay", "name: pay\nada_91250: 1", REPORTS),
    "pay/phases/a.md": ("allowed_ops: []", "allowed_ops: [ada_91250]", REPORTS),
    "pay/m.py": ("def f", "def ada_91250", REPORTS),
    "pay/artifacts/note.yaml": ('"object"', '"ada_91250"', REPORTS),
    "reyn/shared/artifacts/common.yaml": ('"object"', '"ada_91250"', REPORTS),
    "reyn/project/inner/skill.md": ("final_output: note", "final_output: ada_91250", REPORTS),
    "pay/cases/c/expected.json": ('"x"', '"ada_91250"', ("skill_try",)),
    "pay/cases/c/files/x.txt": ("x", "ada_91250", ("skill_try",)),
}
"""Files that a report about the skill `pay` is made from: a text in each, what takes its place, and the reports."""


def _pay(root: Path) -> Project:
    folder = write_skill(root, "pay", {"a": ["end"]}, skill_keys=STEPS)
    write_skill(root, "inner", {"a": ["end"]})
    write_skill(root, "s", {"a": ["end"]}, ops={"a": ", ".join(REPORTS)})
    shutil.move(folder, root / "pay")
    case = {"input.json": {"text": "x"}, "answers.jsonl": finish(), "expected.json": {"artifact": {"type": "x"}}}
    files = {f"pay/cases/c/{name}": json.dumps(content) for name, content in case.items()}
    files |= {"pay/m.py": "def f(artifact):\n    return 'y'\n", "pay/cases/c/files/x.txt": "x"}
    files |= {"pay/artifacts/note.yaml": json.dumps(NOTE), "reyn/shared/artifacts/common.yaml": json.dumps(COMMON)}
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    phase = root / "pay/phases/a.md"
    phase.write_text(phase.read_text().replace("input: note", "input: note | common"))
    return Project(root)


@pytest.mark.parametrize("part", PARTS)
def test_a_report_about_a_skill_asks_about_each_file_that_it_is_made_from(tmp_path: Path, part: str):
    project, (text, secret, kinds) = _pay(tmp_path), PARTS[part]
    path = tmp_path / part
    assert text in path.read_text()
    path.write_text(path.read_text().replace(text, secret))
    ops = [{"kind": kind, "skill_path": "./pay"} for kind in REPORTS]
    for number, pattern in enumerate((part, f"**/{path.name}", f"{Path(part).parent}/*")):
        run_id = f"denied{number}"
        project.run("s", [act(*ops), finish()], permissions={"file.read": [{"deny": pattern}]}, run_id=run_id)
        denied = [one["kind"] for one in project.results(run_id) if one["status"] == "denied"]
        assert set(denied) >= set(kinds)
        assert "91250" not in json.dumps([one for one in project.results(run_id) if one["kind"] in kinds])
    people = Approving("reject")
    project.run("s", [act(*ops), finish()], permissions={"file.read": [{"ask": part}]}, run_id="asked", people=people)
    assert len(people.asked) == len(kinds)
    assert "91250" not in json.dumps([one for one in project.results("asked") if one["kind"] in kinds])


def test_reports_need_no_approval_where_nothing_is_restricted(tmp_path: Path):
    """Also if shared parts are outside of the zones, and a case has a hidden file."""
    project, people = _pay(tmp_path), Approving("reject")
    (tmp_path / "pay/cases/c/files/.gitkeep").touch()
    ops = [{"kind": kind, "skill_path": "./pay"} for kind in REPORTS]
    zones = {"files": {"read": ["pay/"]}}
    project.run("s", [act(*ops), finish()], people=people, **zones)
    assert [one["status"] for one in project.results()] == ["ok", "ok", "ok"], project.results()
    assert people.asked == []


def _asking(root: Path) -> Gate:
    """Return a gate that asks about everything."""
    keys = tuple(entry.key for entry in PERMISSIONS)
    policy = Policy(parse_rules(dict.fromkeys(keys, "ask"), keys), allow_shell=True, allow_unsafe_python=True)
    plain = {key: True for key in keys if not key.startswith(("file.", "python"))}
    modules = [{"module": "./steps.py", "function": "*", "mode": "unsafe"}]
    requests = parse_requests(plain | {"file.read": ["./"], "file.write": ["./"], "python": modules})
    return Gate(Roots(root, root / ".reyn", root / ".reyn/workspace/k"), policy, (requests,), "s")


def _raise(call: Call) -> Plan:
    raise OpFailed("there are 91250 of them")


FAILURES = {
    "as it is": None,
    "an exception": _raise,
    "an error": lambda call: Plan("a rule", result=call.error("there are 91250 of them")),
    "a timeout": lambda call: Plan("a rule", result=call.timeout("after 91250 of them")),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_no_plan_fails_before_the_approvals_that_are_due(tmp_path: Path, failure: str, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def noting(original: Any) -> Any:
        def decide(*arguments: Any, **options: Any) -> Any:
            verdict = original(*arguments, **options)
            asked.extend([verdict.rule] if isinstance(verdict, NeedsApproval) else [])
            return verdict

        return decide

    for name in ("read", "search", "show", "write", "capability", "python"):
        monkeypatch.setattr(Gate, name, noting(getattr(Gate, name)))
    gate, failed = _asking(tmp_path), set()
    env = Env(gate.roots, gate, lambda _name: b"", RecordedFiles(), 1_000_000)
    with SyncRuntime.open(tmp_path) as rt:
        ops = rt.services.ops
        for form in (form for spec in ops.vocabulary.ops for form in spec.forms):
            op = ops.get(form.example["kind"])
            assert op is not None
            with monkeypatch.context() as patched:
                if (fail := FAILURES[failure]) is not None:
                    original = op.plan

                    def plan(_op: Any, call: Call, env: Env, original: Any = original, fail: Any = fail) -> Any:
                        planned = original(call, env)
                        return planned if isinstance(planned, Denied) else fail(call)

                    patched.setattr(type(op), "plan", plan)
                asked.clear()
                planned = plan_op(op, Call("k/1", form.example), env, is_foreign=ops.is_foreign(op.spec.kind))
            if isinstance(planned, Plan) and planned.result is not None and planned.result["status"] != "ok":
                failed |= {op.spec.kind} if asked else set()
                assert [rule for rule in asked if rule not in (planned.approval or "")] == [], form.example
    assert failed >= ({"file", "lint", "skill_graph"} if failure != "as it is" else {"file"})
