"""No form of an op tells a model about files that a rule keeps it from reading.

The attacker is a model that may write where it may not read. The oracle is the result of the same call in projects that
differ only in the restricted file: where results differ, the call tells something about the file.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from reyn.sandbox.backends import BACKENDS
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
