"""Skills through the server: findings at their lines, cases, and who may run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from reyn import SyncRuntime
from reyn.journal import MemoryJournal
from reyn.testing import ScriptedModel
from tests.gateway.support import run_async, serving
from tests.runtime.test_trials import add_case
from tests.support import act, file, finish, go, two_phases, write_skill

EXPECTED = {"status": "finished", "path": ["first", "second"]}


def with_cases(root: Path) -> None:
    two_phases(root)
    add_case(root / "reyn/project/pair", "good", [go("second"), finish("x")], EXPECTED)
    add_case(root / "reyn/project/pair", "wrong", [go("second"), finish("x")], EXPECTED | {"path": ["first"]})


def test_cases_run_and_report_their_problems(tmp_path: Path):
    async def work() -> None:
        with_cases(tmp_path)
        async with serving(tmp_path, []) as served, served.http(served.token()) as http:
            assert (await http.get("/api/skills/pair")).json()["cases"] == ["good", "wrong"]
            both = (await http.post("/api/skills/pair/cases", json={})).json()["cases"]
            assert {one["name"]: bool(one["problems"]) for one in both} == {"good": False, "wrong": True}
            [one] = (await http.post("/api/skills/pair/cases", json={"case": "good"})).json()["cases"]
            assert one == {"name": "good", "problems": []}
            assert served.site.runtime.runs.all() == []

    run_async(work)


def test_who_may_run_cases(tmp_path: Path):
    async def work() -> None:
        with_cases(tmp_path)
        async with serving(tmp_path, []) as served:
            path = "/api/skills/pair/cases"
            for token, wanted, code in (
                (served.token("view", "answer", "approve"), path, 403),
                (served.token("start", skills=["asker"]), path, 403),
                (served.token(), "/api/skills/nowhere/cases", 404),
                (served.token(), "/api/skills/reyn%2Fproject%2Fpair/cases", 404),
                (served.token(), path, 422),
            ):
                async with served.http(token) as http:
                    response = await http.post(wanted, json={"case": "no such case"})
                    assert response.status_code == code, (wanted, response.text)
            served.site.work.may_work = False
            async with served.http(served.token()) as http:
                assert (await http.post(path, json={})).status_code == 409

    run_async(work)


@pytest.mark.parametrize("trust", [True, False])
def test_cases_do_through_the_server_what_they_do_without_it(tmp_path: Path, trust: bool):
    """The project asks for more than an untrusted one gets: wider files, unsafe Python, a program."""
    (tmp_path / "reyn.yaml").write_text("permissions: {file.write: {allow: ['notes/**']}, exec: {allow: ['*']}}\n")
    step = "preprocessor:\n  - python: {module: steps, function: leave, mode: unsafe, into: data.left}\n"
    write_skill(
        tmp_path,
        "eager",
        {"a": ["end"]},
        ops={"a": "file, sandboxed_exec"},
        skill_keys="permissions: {python: [{module: steps, function: leave, mode: unsafe}]}\n",
    )
    mark = tmp_path / "mark"
    (tmp_path / "reyn/project/eager/steps.py").write_text(f"def leave(data):\n    open({str(mark)!r}, 'w')\n")
    writes = act(file("write", "notes/a.txt", content="x"), {"kind": "sandboxed_exec", "argv": ["touch", str(mark)]})
    add_case(tmp_path / "reyn/project/eager", "one", [writes, finish()], {"status": "finished"})
    write_skill(tmp_path, "stepped", {"a": ["end"]}, phase_keys={"a": step})
    add_case(tmp_path / "reyn/project/stepped", "one", [finish()], {"status": "finished"})
    with SyncRuntime.open(tmp_path, model=ScriptedModel([]), journal=MemoryJournal(), trust=trust) as rt:
        mine = {name: msgspec.to_builtins(rt.project.try_cases(name)) for name in ("eager", "stepped")}

    async def work() -> None:
        async with serving(tmp_path, [], trust=trust) as served, served.http(served.token()) as http:
            for name, report in mine.items():
                assert (await http.post(f"/api/skills/{name}/cases", json={})).json() == _plain(report)
            assert not mark.exists()
            assert not (tmp_path / "notes").exists()

    run_async(work)


def _plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def test_findings_have_the_line_that_they_are_about(tmp_path: Path):
    async def work() -> None:
        async with serving(tmp_path, []) as served, served.http(served.token("view")) as http:
            phase = tmp_path / "reyn/project/pair/phases/first.md"
            phase.write_text(phase.read_text().replace("input: note", "input: nothing"))
            skill = (await http.get("/api/skills/pair")).json()
            [found] = [one for one in skill["findings"] if one["severity"] == "error"]
            assert (found["file"], found["text"]) == ("phases/first.md", "input: nothing")
            assert skill["graph"] is None

    run_async(work)
