"""Python steps: where they run, what they see, how they fail, and what a run records of them."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reyn.errors import SandboxUnavailable, SkillInvalid
from reyn.journal import decode, kinds
from reyn.lint import lint_skill
from reyn.sandbox import ProgramLimits, PythonFailed, PythonStep, monty, python_steps, run_safe
from reyn.sandbox.backends import BACKENDS
from tests.kernel.support import Project
from tests.support import finish, go, write_skill

OPEN = {"type": "object", "additionalProperties": True}
HAS_PROCESSES = any(not backend.problem for backend in BACKENDS)
needs_processes = pytest.mark.skipif(not HAS_PROCESSES, reason="no process sandbox")
IN_CPYTHON = "import statistics\n"
"""Monty does not have it."""


def make(root: Path, source: str, *, keys: str = "", entry: str = "", name: str = "s", more: str = "") -> Project:
    """A skill whose preprocessor calls `f`; `keys` are further keys of the step, `entry` those of its permission."""
    folder = write_skill(
        root,
        name,
        {"a": ["end"]},
        artifacts={"note": OPEN},
        phase_keys={"a": f"preprocessor:\n  - python: {{module: ./m.py, function: f, into: data.found{keys}}}\n"},
        skill_keys=f"permissions:\n  python: [{{module: ./m.py, function: f{entry}}}]\n{more}",
    )
    (folder / "m.py").write_text(source)
    return Project(root)


def found(project: Project) -> Any:
    return project.model.requests[0].input["data"]["found"]


def outcome(project: Project, run_id: str = "k") -> dict[str, Any]:
    """The recorded result of the only python step."""
    bodies = [decode(event) for event in project.journal.read(run_id)]
    [completed] = [body for body in bodies if isinstance(body, kinds.OpCompleted) and body.op_kind == "python"]
    return msgspec.json.decode(project.journal.blob(completed.result))


def test_a_step_gets_the_artifact_and_binds_its_result(tmp_path: Path):
    project = make(tmp_path, "def f(artifact):\n    return artifact['type'] + ' ' + artifact['data']['text']\n")
    assert project.run("s", [finish()]).ok
    assert found(project) == "note in"
    assert project.kinds()[1:7] == [
        "phase_started",
        "step_started",
        "python_started",
        "python_completed",
        "step_completed",
        "frame_built",
    ]
    assert outcome(project)["sandbox"] == "monty"
    assert project.is_sound()


def test_a_postprocessor_step_can_be_iterated(tmp_path: Path):
    folder = write_skill(
        tmp_path,
        "s",
        {"a": ["end"]},
        artifacts={"card": {"type": "object", "required": ["all"]}},
        skill_keys="permissions:\n  python: [{module: ./m.py, function: split}, {module: ./m.py, function: up}]\n"
        "postprocessor:\n  output_schema: card\n  steps:\n"
        "    - python: {module: ./m.py, function: split, into: data.words, output_schema: {type: array}}\n"
        "    - iterate: {over: data.words, into: data.all, apply: {python: {module: ./m.py, function: up}}}\n",
    )
    (folder / "m.py").write_text(
        "def split(artifact):\n    return artifact['data']['text'].split()\n\n\n"
        "def up(artifact):\n    return artifact['_iter']['item'].upper() * artifact['_iter']['index']\n"
    )
    project = Project(tmp_path)
    result = project.run("s", [finish("a b c")])
    assert result.artifact["data"]["all"] == ["", "B", "CC"]
    assert project.is_sound()


@needs_processes
def test_a_step_that_needs_more_of_python_runs_in_the_process_sandbox(tmp_path: Path):
    project = make(tmp_path, f"{IN_CPYTHON}def f(artifact):\n    return statistics.mean([1, 2, 6])\n")
    assert project.run("s", [finish()]).ok
    assert found(project) == 3
    recorded = outcome(project)
    assert recorded["sandbox"] in ("bubblewrap", "landlock")
    assert recorded["note"] == "it imports `statistics`"


@needs_processes
def test_a_module_of_the_skill_can_be_imported(tmp_path: Path):
    project = make(tmp_path, "from helper import twice\ndef f(artifact):\n    return twice(21)\n")
    (tmp_path / "reyn/project/s/helper.py").write_text("def twice(n):\n    return 2 * n\n")
    assert project.run("s", [finish()]).ok
    assert found(project) == 42


@needs_processes
def test_what_fails_in_monty_is_decided_by_cpython(tmp_path: Path):
    project = make(tmp_path, "def f(artifact):\n    return 'a'.translate({97: 'b'})\n")
    assert project.run("s", [finish()]).ok
    assert found(project) == "b"
    assert outcome(project)["note"].startswith("it failed in Monty: AttributeError")


@pytest.mark.parametrize("head", ["", pytest.param(IN_CPYTHON, marks=needs_processes)], ids=["monty", "process"])
class TestBothSandboxes:
    """Monty and CPython give the same answers."""

    def test_the_clock_is_that_of_the_step(self, tmp_path: Path, head: str):
        source = (
            f"{head}import time\nfrom datetime import date, datetime, timezone\ndef f(artifact):\n"
            "    return [time.time(), datetime.now(timezone.utc).isoformat(), datetime.now().isoformat(),"
            " date.today().isoformat(), time.monotonic() - time.monotonic()]\n"
        )
        project = make(tmp_path, source)
        assert project.run("s", [finish()]).ok
        [started] = [event for event in project.journal.read("k") if event.kind == "step_started"]
        seconds, aware, naive, day, passed = found(project)
        assert seconds == started.ts / 1_000_000
        assert aware.endswith("+00:00")
        assert naive == aware.removesuffix("+00:00")
        assert naive.startswith(day)
        assert passed == 0

    def test_randomness_is_fixed(self, tmp_path: Path, head: str):
        source = f"{head}import random\ndef f(artifact):\n    return [random.random(), random.randint(1, 10**9)]\n"
        project = make(tmp_path, source)
        assert project.run("s", [finish()]).ok
        first = found(project)
        assert first[0] == 0.8444218515250481
        assert project.run("s", [finish()], run_id="other").ok
        assert found(project) == first

    def test_what_it_prints_is_recorded_and_changes_nothing(self, tmp_path: Path, head: str):
        project = make(tmp_path, f"{head}print('{{\"value\": 1}}')\ndef f(artifact):\n    print('two')\n    return 2\n")
        assert project.run("s", [finish()]).ok
        assert found(project) == 2
        assert outcome(project)["output"] == '{"value": 1}\ntwo\n'

    def test_a_lot_of_output_is_truncated(self, tmp_path: Path, head: str):
        project = make(tmp_path, f"{head}def f(artifact):\n    for n in range(100): print('x' * 99)\n    return 1\n")
        assert project.run("s", [finish()], sandbox={"output_bytes": 1_000}).ok
        recorded = outcome(project)
        assert (len(recorded["output"]), recorded["truncated"]) == (1_000, True)

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            ("raise ValueError('bad input')", "ValueError: bad input"),
            ("return artifact['nowhere']", "KeyError: 'nowhere'"),
            ("return float('nan')", "not JSON"),
            ("return open('/etc/passwd').read()", "Error: "),
            ("return 'x' * (2 << 30)", "emory"),
            ("while True: pass", "time"),
        ],
    )
    def test_a_failure_is_the_reason_of_the_run(self, tmp_path: Path, head: str, body: str, reason: str):
        entry = ", timeout: 2" if body.startswith("while") else ""
        project = make(tmp_path, f"{head}def f(artifact):\n    {body}\n", entry=entry)
        result = project.run("s", [finish()])
        assert (result.status, result.code) == ("failed", "RYN203")
        assert "step 1.pre.1 `python`" in result.reason
        assert reason in result.reason
        assert project.is_sound()


@pytest.mark.parametrize(("on_error", "bound"), [("skip", {"text": "in"}), ("empty", {"text": "in", "found": None})])
def test_a_failure_can_be_skipped(tmp_path: Path, on_error: str, bound: dict[str, Any]):
    project = make(tmp_path, "def f(artifact):\n    raise ValueError('no')\n", keys=f", on_error: {on_error}")
    result = project.run("s", [finish()])
    assert result.ok
    assert project.model.requests[0].input["data"] == bound
    assert "ValueError: no" in result.warnings[0]


def test_a_result_that_does_not_match_its_schema_fails(tmp_path: Path):
    project = make(tmp_path, "def f(artifact):\n    return 'one'\n", keys=", output_schema: {type: integer}")
    result = project.run("s", [finish()])
    assert "the result of `f` does not match `output_schema`" in result.reason


def test_replay_executes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    project = make(tmp_path, "def f(artifact):\n    return 1\n")
    assert project.run("s", [finish()]).ok
    monkeypatch.setattr(python_steps.monty, "run_monty", lambda *args: pytest.fail("executed"))
    with project.open([]) as runtime:
        assert runtime.runs.replay("k").status == "finished"


def test_a_run_uses_its_own_copy_of_the_module(tmp_path: Path):
    project = make(tmp_path, "def f(artifact):\n    raise ValueError('first')\n")
    assert project.run("s", [finish()]).status == "failed"
    (tmp_path / "reyn/project/s/m.py").write_text("def f(artifact):\n    return 1\n")
    assert "first" in project.resume([finish()], retry=True).reason
    assert project.resume([finish()], retry=True, upgrade=True).ok


class TestWithoutSandboxes:
    """A step that cannot be isolated is not executed."""

    @pytest.fixture(autouse=True)
    def nothing_is_available(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for backend in BACKENDS:
            monkeypatch.setitem(vars(backend), "problem", "not here")
        monkeypatch.setattr(monty, "monty_problem", lambda: "Monty is not here")

    def test_the_step_is_refused_with_a_code_and_every_reason(self, tmp_path: Path):
        result = make(tmp_path, "def f(artifact):\n    return 1\n").run("s", [finish()])
        assert result.status == "failed"
        assert "RYN330" in result.reason
        assert "Monty is not here" in result.reason
        assert "bubblewrap: not here; landlock: not here" in result.reason

    def test_a_backend_that_is_named_is_the_only_one(self, tmp_path: Path):
        project = make(tmp_path, f"{IN_CPYTHON}def f(artifact):\n    return 1\n")
        result = project.run("s", [finish()], sandbox={"backend": "landlock"})
        assert "landlock: not here" in result.reason
        assert "bubblewrap" not in result.reason


def test_with_monty_alone_its_error_is_the_reason(monkeypatch: pytest.MonkeyPatch):
    for backend in BACKENDS:
        monkeypatch.setitem(vars(backend), "problem", "not here")
    step = PythonStep({"./m.py": "def f(a):\n    raise ValueError('x')\n"}, "./m.py", "f", {}, 0)
    with pytest.raises(PythonFailed, match="ValueError: x") as failed:
        run_safe(step, ProgramLimits())
    assert isinstance(failed.value.__cause__, SandboxUnavailable)


# -- the operator's choice ----------------------------------------------------------------------------


@needs_processes
def test_the_operator_can_choose_cpython_for_every_step(tmp_path: Path):
    project = make(tmp_path, "def f(artifact):\n    return 1\n")
    assert project.run("s", [finish()], python={"sandbox": "process"}).ok
    assert outcome(project)["sandbox"] in [backend.name for backend in BACKENDS]
    assert outcome(project)["note"] == "`python.sandbox` is `process`"
    [finding] = [one for one in lint_skill(tmp_path / "reyn/project/s", python="process") if one.code == "RYN170"]
    assert finding.message.endswith("in CPython inside the process sandbox, because `python.sandbox` is `process`")


@pytest.mark.parametrize(("head", "ok"), [("", True), (IN_CPYTHON, False)])
def test_the_operator_can_exclude_cpython(tmp_path: Path, head: str, ok: bool):
    project = make(tmp_path, f"{head}def f(artifact):\n    return 1\n")
    why = "because it imports `statistics`; `python.sandbox` is `monty`"
    with nullcontext() if ok else pytest.raises(SkillInvalid, match=why):
        assert project.run("s", [finish()], python={"sandbox": "monty"}).ok
    findings = lint_skill(tmp_path / "reyn/project/s", python="monty")
    assert [one.severity for one in findings if one.code == "RYN170"] == ["info" if ok else "error"]


def test_a_step_that_fails_in_monty_is_not_repeated_if_cpython_is_excluded(tmp_path: Path):
    project = make(tmp_path, "def f(artifact):\n    raise ValueError('x')\n")
    assert "ValueError: x" in project.run("s", [finish()], python={"sandbox": "monty"}).reason
    assert outcome(project)["sandbox"] == "monty"


@needs_processes
def test_the_time_of_a_step_is_configured(tmp_path: Path):
    project = make(tmp_path, f"{IN_CPYTHON}def f(artifact):\n    while True: pass\n")
    result = project.run("s", [finish()], python={"seconds": 1})
    assert (result.status, outcome(project)["status"]) == ("failed", "timeout")


# -- permissions --------------------------------------------------------------------------------------


def test_the_operator_can_deny_a_safe_step(tmp_path: Path):
    project = make(tmp_path, "def f(artifact):\n    return 1\n")
    result = project.run("s", [finish()], permissions={"python": [{"deny": "./m.py:*"}]})
    assert "the operator denies `python` for `./m.py:f`" in result.reason


def test_the_operator_can_be_asked_about_a_safe_step(tmp_path: Path):
    project = make(tmp_path, "def f(artifact):\n    return 1\n")
    result = project.run("s", [finish()], permissions={"python": "ask"})
    assert result.status == "waiting"
    with project.open([finish()], permissions={"python": "ask"}) as runtime:
        runtime.answer("k", result.question.id, "approve")
        assert runtime.resume("k").ok


def test_a_function_that_the_skill_does_not_list_is_denied(tmp_path: Path):
    project = make(tmp_path, "def f(artifact):\n    return 1\n")
    skill = tmp_path / "reyn/project/s/skill.md"
    skill.write_text(skill.read_text().replace("function: f", "function: g"))
    with pytest.raises(SkillInvalid, match=r"`f` of `\./m\.py` in the preprocessor of `a` has no permission"):
        project.run("s", [finish()])


class TestUnsafe:
    SOURCE = (
        "import os\nfrom pathlib import Path\ndef f(artifact):\n"
        "    Path('output').mkdir(exist_ok=True)\n    Path('output/log').open('a').write('x')\n"
        "    return {'cwd': os.getcwd(), 'token': os.environ.get('TOKEN'), 'home': 'SECRET_OF_TEST' in os.environ}\n"
    )

    def make(self, root: Path, entry: str = ", mode: unsafe, reason: test", more: str = "") -> Project:
        return make(root, self.SOURCE, keys=", mode: unsafe", entry=entry, more=more)

    def test_it_needs_the_operators_switch(self, tmp_path: Path):
        project = self.make(tmp_path)
        result = project.run("s", [finish()])
        assert "--allow-unsafe-python" in result.reason
        assert not (tmp_path / "output").exists()
        with project.open([finish()], allow_unsafe_python=True) as runtime:
            assert runtime.resume("k", retry=True).ok

    def test_it_needs_the_entry_of_the_skill(self, tmp_path: Path):
        with pytest.raises(SkillInvalid, match="is unsafe, but its permission is not"):
            self.make(tmp_path, entry="").run("s", [finish()], allow_unsafe_python=True)

    def test_it_has_the_rights_of_the_user_but_not_the_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("SECRET_OF_TEST", "x")
        project = self.make(tmp_path)
        assert project.run("s", [finish()], allow_unsafe_python=True).ok
        assert found(project) == {"cwd": str(tmp_path), "token": None, "home": False}
        assert (tmp_path / "output/log").read_text() == "x"
        assert outcome(project)["sandbox"] == "none"

    @pytest.mark.parametrize(
        ("own", "above", "seen"),
        [
            ("[TOKEN]", "[TOKEN]", True),
            ("[TOKEN]", "[]", False),
            ("['*']", "[TOKEN]", True),
            ("['*']", "[]", False),
            ("['*']", "['*']", False),
        ],
    )
    def test_it_has_the_credentials_that_all_skills_require(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, above: str, seen: bool
    ):
        monkeypatch.setenv("REYN_SECRET_TOKEN", "long-value-of-a-token")
        source = "import os\n\n\ndef f(artifact):\n    return len(os.environ.get('TOKEN', ''))\n"
        project = make(
            tmp_path, source, keys=", mode: unsafe", entry=", mode: unsafe", more=f"required_credentials: {own}\n"
        )
        keys = (
            f"permissions:\n  python: [{{module: ./m.py, function: f, mode: unsafe}}]\nrequired_credentials: {above}\n"
        )
        write_skill(tmp_path, "top", {"@s": ["end"]}, artifacts={"note": OPEN}, skill_keys=keys)
        assert project.run("top", [finish()], allow_unsafe_python=True).ok
        assert found(project) == (len("long-value-of-a-token") if seen else 0)

    def test_a_skill_above_has_to_list_it_as_well(self, tmp_path: Path):
        self.make(tmp_path)
        write_skill(tmp_path, "top", {"@s": ["end"]}, artifacts={"note": OPEN})
        result = Project(tmp_path).run("top", [finish()], allow_unsafe_python=True)
        assert result.status == "failed"
        assert not (tmp_path / "output").exists()


def test_a_safe_step_needs_no_request_of_the_skill_above(tmp_path: Path):
    make(tmp_path, "def f(artifact):\n    return 1\n")
    write_skill(tmp_path, "top", {"@s": ["b"], "b": ["end"]}, artifacts={"note": OPEN})
    assert Project(tmp_path).run("top", [finish(), finish()]).ok


def test_no_phase_can_allow_the_op_of_a_step(tmp_path: Path):
    from tests.support import read_skill

    folder = write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "python"})
    [finding] = [finding for finding in read_skill(folder).findings if finding.severity == "error"]
    assert (finding.code, finding.message) == ("RYN122", "no phase can allow `python`")


def test_an_older_skill_runs_its_python_steps(tmp_path: Path):
    folder = write_skill(
        tmp_path,
        "menu_pricer",
        {"cost": ["price"], "price": []},
        artifacts={
            "note": {"name": "note", "schema": OPEN},
            "tag": {"name": "tag", "schema": {"type": "object", "required": ["gross"]}},
        },
        skill_keys="permissions:\n  python: [{module: ./margin.py, function: add_margin, mode: safe, timeout: 5}]\n"
        "postprocessor:\n  output_schema: tag\n  steps:\n"
        "    - {type: python, module: ./margin.py, function: add_margin, into: data.gross,"
        " output_schema: {type: number}}\n",
    )
    (folder / "margin.py").write_text(
        "from decimal import Decimal\n\n\ndef add_margin(artifact):\n    print('adding')\n"
        "    return float(Decimal(len(artifact['data']['text'])) * Decimal('2.5'))\n"
    )
    result = Project(tmp_path).run("menu_pricer", [go("price"), finish("ramen")])
    assert result.artifact == {"type": "tag", "data": {"text": "ramen", "gross": 12.5}}
