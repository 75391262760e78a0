"""An op kind from outside the package: linted, offered, gated, executed, recovered, replayed and documented."""

from __future__ import annotations

import asyncio
import json
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.errors import OpInvalid, OpMissing, SkillInvalid
from reyn.journal.sqlite import SqliteJournal
from reyn.lint import lint_skill
from reyn.ops import AskRequest, Call, Denied, Env, OpForm, OpSpec, Plan, standard_ops
from reyn.ops.docs import op_page
from reyn.testing import CountingIds, ScriptedModel
from reyn.testing.crash import KILLED, Failpoints, in_child
from reyn.vocabulary.schemas import arguments, result, text
from tests.kernel.doing import Project
from tests.support import act, finish, write_skill

SEND = {"kind": "telegraph", "to": "Ada", "message": "STOP"}


def form(kind: str = "telegraph", **changes: Any) -> OpForm:
    fields = {
        "op": None,
        "summary": "Send a telegram.",
        "arguments": arguments(kind, None, {"to": text(80), "message": text(400)}),
        "effect": "idempotent",
        "result": result(kind, None, {"sent": {"type": "integer"}}),
        "example": {"kind": kind, "to": "Ada", "message": "Arrived."},
    }
    return OpForm(**fields | changes)


class Telegraph:
    """Appends a line to a file outside the project, once per call."""

    def __init__(self, log: Path, **spec: Any) -> None:
        self.log = log
        self.spec = OpSpec("telegraph", "Send a telegram.", **{"effect": "idempotent", "forms": (form(),)} | spec)

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        return Plan("telegrams are free")

    async def perform(self, call: Call, plan: Plan, env: Env) -> dict[str, Any]:
        sent = self.log.read_text().splitlines() if self.log.exists() else []
        if not any(line.startswith(call.key) for line in sent):
            with self.log.open("a") as log:
                log.write(f"{call.key} {call.args['to']}: {call.args['message']}\n")
        return call.ok(sent=len(call.args["message"]))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = tmp_path / "project"
    write_skill(root, "wire", {"a": ["end"]}, ops={"a": "telegraph"})
    return Project(root)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "telegrams"


# -- life cycle --------------------------------------------------------------------------------------


def test_lint_knows_the_op(project: Project, log: Path):
    folder = project.root / "reyn" / "project" / "wire"
    assert [finding.code for finding in lint_skill(folder)] == ["RYN122"]
    assert lint_skill(folder, vocabulary=standard_ops().with_ops(Telegraph(log)).vocabulary) == []
    with project.open([]) as rt, pytest.raises(SkillInvalid, match="unknown op `telegraph`"):
        rt.run("wire", {"text": "in"})


def test_the_op_is_offered_executed_and_replayed(project: Project, log: Path):
    outcome = project.run("wire", [act(SEND), finish()], ops=[Telegraph(log)])
    assert outcome.ok
    assert "Send a telegram. Fields: to, message." in project.model.stable(0)
    assert '"sent":4' in project.model.shown(1)
    assert log.read_text() == "k/1.1.1 Ada: STOP\n"
    assert [kind for kind in project.kinds() if "telegraph" in kind] == ["telegraph_started", "telegraph_completed"]
    with project.open([], ops=[Telegraph(log)]) as rt:
        assert rt.replay("k").events == rt.verify("k").events
    assert log.read_text() == "k/1.1.1 Ada: STOP\n"


def test_arguments_are_validated_against_the_form(project: Project, log: Path):
    answers = [act({"kind": "telegraph", "to": "Ada"}), act(SEND), finish()]
    assert project.run("wire", answers, ops=[Telegraph(log)]).ok
    [rejected] = project.events("validation_error")
    assert (rejected["class"], rejected["message"]) == ("ops", "'message' is missing")


def test_the_op_needs_a_request_and_a_grant(project: Project, log: Path):
    op = Telegraph(log, permission="tool")
    folder = project.root / "reyn" / "project" / "wire"
    vocabulary = standard_ops().with_ops(op).vocabulary
    assert [finding.code for finding in lint_skill(folder, vocabulary=vocabulary)] == ["RYN127"]
    assert project.run("wire", [act(SEND), finish()], run_id="none", ops=[op]).ok
    write_skill(project.root, "wire", {"a": ["end"]}, ops={"a": "telegraph"}, skill_keys="permissions: {tool: true}\n")
    assert lint_skill(folder, vocabulary=vocabulary) == []
    assert project.run("wire", [act(SEND), finish()], run_id="asked", ops=[op]).ok
    assert project.run("wire", [act(SEND), finish()], run_id="no", ops=[op], permissions={"tool": "deny"}).ok
    rules = [project.events("permission_denied", run_id=run)[0]["rule"] for run in ("none", "asked", "no")]
    assert rules == ["default: no request", "default: no grant", "permissions: tool: deny"]
    assert not log.exists()
    assert project.run("wire", [act(SEND), finish()], run_id="yes", ops=[op], permissions={"tool": "allow"}).ok
    assert log.read_text() == "yes/1.1.1 Ada: STOP\n"


@pytest.mark.parametrize("effect", ["idempotent", "unsafe"])
def test_the_op_is_recovered_after_a_kill_at_every_point(tmp_path: Path, effect: Any):
    """The telegram is sent once; an unsafe op with an unknown outcome waits for a person."""

    def drive(folder: Path, kill_at: int = 0) -> tuple[list[str], Any]:
        points = Failpoints(kill_at)
        op = Telegraph(folder / "telegrams", effect=effect, forms=(form(effect=effect),))

        async def work() -> Any:
            runtime = OSRuntime.open(
                folder,
                model=points.wrap(ScriptedModel([act(SEND), finish()]), "model"),
                journal=points.wrap(SqliteJournal(folder / ".reyn"), "journal"),
                ids=CountingIds(),
                ops=[points.wrap(op, "op", ("perform",))],
            )
            async with runtime:
                result = await runtime.run("wire", {"text": "in"}, run_id="k")
                if result.status == "waiting":
                    runtime.answer("k", result.wait.id, "again")
                    asked = result.wait.reason
                    return await runtime.resume("k"), asked
                return result, ""

        return points.passed, asyncio.run(work())

    write_skill(tmp_path / "calm", "wire", {"a": ["end"]}, ops={"a": "telegraph"})
    points, (calm, _) = drive(tmp_path / "calm")
    assert calm.ok
    assert "op.perform before" in points
    asked = 0
    for number in count(1):  # a slow machine polls the inbox more often, so the number of points varies
        folder = tmp_path / f"{number}"
        write_skill(folder, "wire", {"a": ["end"]}, ops={"a": "telegraph"})
        if in_child(lambda folder=folder, number=number: drive(folder, number)) != KILLED:
            break
        _, (outcome, reason) = drive(folder)
        assert outcome.ok, f"killed at point {number}"
        assert (folder / "telegrams").read_text() == "k/1.1.1 Ada: STOP\n"
        asked += reason == "unsafe"
    assert number >= len({*points})
    assert bool(asked) == (effect == "unsafe")


def test_the_op_has_a_reference_page(log: Path):
    page = op_page(Telegraph(log, permission="tool").spec)
    assert "## telegraph\n\nSend a telegram. Effect: *idempotent*. Permission: `tool`.\n" in page
    assert "| `to` | string |  |" in page
    assert '{"kind":"telegraph","to":"Ada","message":"Arrived."}' in page


# -- changed or missing kinds ----------------------------------------------------------------------------------


def test_a_changed_specification_does_not_affect_a_run_in_flight(project: Project, log: Path):
    question = {"kind": "ask_user", "question": "Now?"}
    write_skill(project.root, "wire", {"a": ["end"]}, ops={"a": "telegraph, ask_user"})
    answers = [act(question), act(SEND), finish()]
    assert project.run("wire", answers, ops=[Telegraph(log)]).status == "waiting"
    later = Telegraph(log, forms=(form(summary="Send a cable.", arguments=arguments("telegraph", None, {"x": {}}),
                                       example={"kind": "telegraph", "x": 1}),))  # fmt: skip
    with project.open(answers, ops=[later]) as rt:
        rt.answer("k", "1.1.1", "yes")
        assert rt.resume("k").ok
        assert rt.replay("k").events == rt.verify("k").events
    assert "Fields: to, message." in project.model.stable(0)
    assert "has changed since the run started" in project.model.shown(1)


def test_a_run_with_an_uninstalled_kind_stays_readable(project: Project, log: Path, tmp_path: Path):
    write_skill(project.root, "wire", {"a": ["end"]}, ops={"a": "telegraph, ask_user"})
    answers = [act(SEND, {"kind": "ask_user", "question": "Now?"}), finish()]
    assert project.run("wire", answers, ops=[Telegraph(log)]).status == "waiting"
    with project.open(answers) as rt:
        assert [row.status for row in rt.runs()] == ["waiting"]
        assert rt.result("k").wait.message == "Now?"
        assert rt.verify("k").events == len(project.kinds())
        lines = list(rt.export("k"))
        assert rt.replay("k").missing_ops == ("telegraph",)
        rt.answer("k", "1.1.2", "yes")
        with pytest.raises(OpMissing, match="`telegraph`, which is not installed"):
            rt.resume("k")
    (tmp_path / "elsewhere").mkdir()
    with Project(tmp_path / "elsewhere").open([]) as rt:
        assert rt.import_(lines).imported == ("k",)
    with project.open(answers, ops=[Telegraph(log)]) as rt:
        assert rt.resume("k").ok


# -- faulty ops ------------------------------------------------------------------------------


class Odd(Telegraph):
    """An op with one fault."""

    def __init__(self, log: Path, *, plan: Any = None, perform: Any = None) -> None:
        super().__init__(log)
        self._plan, self._perform = plan, perform

    def plan(self, call: Call, env: Env) -> Any:
        return self._plan(call) if self._plan else Plan()

    async def perform(self, call: Call, plan: Plan, env: Env) -> Any:
        return self._perform(call) if self._perform else call.ok(sent=1)


def fail(error: BaseException) -> Any:
    def raising(_: Call) -> Any:
        raise error

    return raising


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (fail(ValueError("no wire")), "the op failed: ValueError: no wire"),
        (fail(OSError(5, "x", "/secret/path")), "Input/output error"),
        (fail(MemoryError()), "more memory than is available"),
        (fail(RecursionError()), "more memory than is available"),
        (fail(SystemExit(3)), "the op failed: SystemExit: 3"),
        (fail(asyncio.CancelledError()), "the op failed: CancelledError"),
        (lambda call: None, "returned a NoneType instead of a result"),
        (lambda call: {"kind": "file", "status": "ok"}, "a result of another kind"),
        (lambda call: call.ok() | {"status": "fine"}, "the unknown status 'fine'"),
        (lambda call: call.ok(sent=float("nan")), "not JSON"),
        (lambda call: call.ok(sent={1: 2}), "not JSON"),
        (lambda call: call.ok(sent=object()), "not JSON"),
    ],
)
def test_a_faulty_perform_becomes_an_error_result(project: Project, log: Path, fault: Any, message: str):
    check_error(project, Odd(log, perform=fault), message)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (fail(ValueError("no wire")), "the op failed: ValueError: no wire"),
        (fail(SystemExit(3)), "the op failed: SystemExit: 3"),
        (fail(asyncio.CancelledError()), "the op failed: CancelledError"),
        (lambda call: None, "the op planned a NoneType"),
        (lambda call: Plan(result={"kind": "file", "status": "ok"}), "a result of another kind"),
        (lambda call: Plan(result=call.ok(sent={1})), "not JSON"),
    ],
)
def test_a_faulty_plan_becomes_an_error_result(project: Project, log: Path, fault: Any, message: str):
    check_error(project, Odd(log, plan=fault), message)


def check_error(project: Project, op: Odd, message: str) -> None:
    assert project.run("wire", [act(SEND), finish()], ops=[op]).ok
    text = project.model.shown(1)
    assert '"status":"error"' in text
    assert message in text
    assert "/secret/path" not in text
    with project.open([], ops=[op]) as rt:
        assert rt.replay("k").events == rt.verify("k").events


def test_an_op_can_ask_a_person_through_a_request(project: Project, log: Path):
    class Asking(Telegraph):
        def plan(self, call: Call, env: Env) -> Plan:
            return Plan("ask", request=AskRequest("Really?", {"enum": ["yes", "no"]}, ("yes", "no")))

        async def perform(self, call: Call, plan: Plan, env: Env) -> dict[str, Any]:
            return call.ok(sent=len(plan.answer))

    answers = [act(SEND), finish()]
    waiting = project.run("wire", answers, ops=[Asking(log)])
    assert (waiting.status, waiting.wait.message) == ("waiting", "Really?")
    with project.open(answers, ops=[Asking(log)]) as rt:
        rt.answer("k", waiting.wait.id, "yes")
        assert rt.resume("k").ok
        assert rt.replay("k").events == rt.verify("k").events
    assert '"sent":3' in project.model.shown(0)


# -- registration -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("run", "`run_started` exists already"),
        ("phase", "`phase_started` exists already"),
        ("step", "`step_started` exists already"),
        ("skill", "`skill_completed` exists already"),
        ("restore", "`restore_started` exists already"),
        ("undo", "`undo_started` exists already"),
        ("sub_run", "`sub_run_started` exists already"),
        ("postprocessor", "`postprocessor_started` exists already"),
        ("file", "already registered"),
        ("shell", "reserved"),
        ("Telegraph", "lower-case"),
        ("a" * 41, "lower-case"),
        ("", "lower-case"),
    ],
)
def test_a_conflicting_kind_is_rejected(tmp_path: Path, log: Path, kind: str, message: str):
    op = Telegraph(log)
    op.spec = OpSpec(kind, "x", "pure", forms=(form(kind),))
    with pytest.raises(OpInvalid, match=message):
        OSRuntime.open(tmp_path, ops=[op])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"forms": ()}, "has no forms"),
        ({"permission": "everything"}, "unknown permission `everything`"),
        ({"forms": (form(arguments={"type": "object"}),)}, "build `arguments` with"),
        ({"forms": (form("other"),)}, "build `arguments` with"),
        ({"forms": (form(result={"type": "nothing"}),)}, "a schema is invalid"),
        ({"forms": (form(example={"kind": "telegraph"}),)}, "the example is invalid"),
    ],
)
def test_an_invalid_specification_is_rejected(tmp_path: Path, log: Path, spec: dict, message: str):
    with pytest.raises(OpInvalid, match=message):
        OSRuntime.open(tmp_path, ops=[Telegraph(log, **spec)])


def test_an_object_that_is_not_an_op_is_rejected(tmp_path: Path):
    with pytest.raises(OpInvalid, match="is not an op"):
        OSRuntime.open(tmp_path, ops=[json])


def test_a_kind_cannot_be_registered_twice(tmp_path: Path, log: Path):
    with pytest.raises(OpInvalid, match="already registered"):
        OSRuntime.open(tmp_path, ops=[Telegraph(log), Telegraph(log)])


# -- entry points -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package, installed into its own folder."""
    import subprocess

    folder = tmp_path_factory.mktemp("installed")
    source = Path(__file__).parents[2] / "examples" / "notify-op"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", folder, source], check=True, timeout=120)
    return folder


def run_reyn(installed: Path, *args: str, cwd: Path) -> tuple[int, str]:
    import os
    import subprocess

    path = os.pathsep.join([str(installed), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "reyn", *args],
        cwd=cwd, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_a_package_provides_an_op_through_an_entry_point(installed: Path, tmp_path: Path):
    keys = "permissions: {tool: true}\n"
    write_skill(tmp_path, "report", {"a": ["end"]}, ops={"a": "notify"}, skill_keys=keys)
    notify = {"kind": "notify", "channel": "ops", "message": "done"}
    (tmp_path / "answers.jsonl").write_text("\n".join(json.dumps(answer) for answer in (act(notify), finish())))
    (tmp_path / "reyn.yaml").write_text("model: scripted:answers.jsonl\npermissions: {tool: allow}\n")
    assert run_reyn(installed, "lint", "report", cwd=tmp_path)[0] == 0
    code, page = run_reyn(installed, "ops", "notify", cwd=tmp_path)
    assert (code, page.splitlines()[0]) == (0, "# notify")
    code, output = run_reyn(installed, "run", "report", '{"text": "in"}', "--run-id", "r", cwd=tmp_path)
    assert code == 0, output
    assert "notify ops · ok" in output
    [queued] = (tmp_path / ".reyn" / "workspace" / "r" / "outbox").iterdir()
    assert json.loads(queued.read_text()) == {"channel": "ops", "message": "done"}
    assert run_reyn(installed, "replay", "r", cwd=tmp_path)[0] == 0
    without = Path(sys.executable).parent  # any folder without the package
    code, output = run_reyn(without, "show", "r", cwd=tmp_path)
    assert (code, "notify ops · ok" in output) == (0, True)
    assert run_reyn(without, "verify", "r", cwd=tmp_path)[0] == 0


def test_a_broken_entry_point_is_reported_by_name(tmp_path: Path):
    info = tmp_path / "broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[reyn.ops]\nbroken = no_such_module:Op\n")
    code, output = run_reyn(tmp_path, "ops", cwd=tmp_path)
    assert (code, "error RYN708: the op `broken` of the entry point" in output) == (2, True), output
