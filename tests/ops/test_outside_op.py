"""An op kind from outside the package: linted, offered, gated, executed, recovered, replayed and documented."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.errors import OpInvalid, OpMissing, SkillInvalid
from reyn.journal import Blob, Cancel
from reyn.journal.sqlite import SqliteJournal
from reyn.kernel.world.inbox import InboxPolling
from reyn.lint import lint_skill
from reyn.ops import (
    AskRequest,
    Call,
    Denied,
    Env,
    OpFailed,
    OpForm,
    OpSpec,
    Overview,
    Plan,
    RunRequest,
    plan_write,
    standard_ops,
)
from reyn.ops.docs import op_page
from reyn.testing import CountingIds, ScriptedModel
from reyn.testing.crash import KILLED, Failpoints, in_child
from reyn.vocabulary import OpTarget
from reyn.vocabulary.schemas import arguments, result, text
from reyn.workspace import Change, RecordedFiles
from tests.kernel.support import Project
from tests.properties import some
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


class Camera(Telegraph):
    """Attaches a picture to the first telegram."""

    async def perform(self, call: Call, plan: Plan, env: Env) -> dict[str, Any]:
        if call.args["to"] == "first":
            env.attachments.add(b"picture")
        return await super().perform(call, plan, env)


def test_an_attachment_belongs_to_one_op(project: Project, log: Path):
    ops = [SEND | {"to": "first"}, SEND | {"to": "second"}]
    assert project.run("wire", [act(*ops), finish()], ops=[Camera(log)]).ok
    counts = [len(event.get("attachments", ())) for event in project.events("telegraph_completed")]
    assert counts == [1, 0]


# -- the whole way --------------------------------------------------------------------------------------


def test_a_skill_that_uses_it_is_linted(project: Project, log: Path):
    folder = project.root / "reyn" / "project" / "wire"
    assert [finding.code for finding in lint_skill(folder)] == ["RYN122"]
    assert lint_skill(folder, vocabulary=standard_ops().with_ops(Telegraph(log)).vocabulary) == []
    with project.open([]) as rt, pytest.raises(SkillInvalid, match="unknown op `telegraph`"):
        rt.run("wire", {"text": "in"})


def test_it_is_offered_executed_and_replayed(project: Project, log: Path):
    recorded: list[str] = []

    class Watched(Telegraph):
        async def perform(self, call: Call, plan: Plan, env: Env) -> dict[str, Any]:
            recorded.append(project.kinds()[-1])
            return await super().perform(call, plan, env)

    outcome = project.run("wire", [act(SEND), finish()], ops=[Watched(log)])
    assert outcome.ok
    assert recorded == ["telegraph_started"]  # durable before the effect
    assert "- telegraph(to, message): Send a telegram." in project.model.system_message(0)
    assert '"sent":4' in project.model.turn_message(1)
    assert log.read_text() == "k/1.1.1 Ada: STOP\n"
    assert [kind for kind in project.kinds() if "telegraph" in kind] == ["telegraph_started", "telegraph_completed"]
    with project.open([], ops=[Telegraph(log)]) as rt:
        assert rt.runs.replay("k").events == rt.runs.verify("k").events
    assert log.read_text() == "k/1.1.1 Ada: STOP\n"


def test_what_the_model_requests_is_validated_against_its_form(project: Project, log: Path):
    answers = [act({"kind": "telegraph", "to": "Ada"}), act(SEND), finish()]
    assert project.run("wire", answers, ops=[Telegraph(log)]).ok
    [rejected] = project.events("validation_error")
    assert (rejected["class"], rejected["message"]) == ("ops", "'message' is missing")


def test_it_is_gated_by_request_and_grant(project: Project, log: Path):
    op = Telegraph(log, permission="tool")
    folder = project.root / "reyn" / "project" / "wire"
    vocabulary = standard_ops().with_ops(op).vocabulary
    assert [finding.code for finding in lint_skill(folder, vocabulary=vocabulary)] == ["RYN127"]
    with pytest.raises(SkillInvalid, match="RYN127"):
        project.run("wire", [act(SEND), finish()], run_id="none", ops=[op])
    write_skill(project.root, "wire", {"a": ["end"]}, ops={"a": "telegraph"}, skill_keys="permissions: {tool: true}\n")
    assert lint_skill(folder, vocabulary=vocabulary) == []
    assert project.run("wire", [act(SEND), finish()], run_id="asked", ops=[op]).ok
    assert project.run("wire", [act(SEND), finish()], run_id="no", ops=[op], permissions={"tool": "deny"}).ok
    rules = [project.events("permission_denied", run_id=run)[0]["rule"] for run in ("asked", "no")]
    assert rules == ["default: no grant", "permissions.tool: deny"]
    assert not log.exists()
    assert project.run("wire", [act(SEND), finish()], run_id="yes", ops=[op], permissions={"tool": "allow"}).ok
    assert log.read_text() == "yes/1.1.1 Ada: STOP\n"


@pytest.mark.sampled
@pytest.mark.parametrize("effect", ["idempotent", "unsafe"])
def test_it_is_recovered_after_a_kill_at_every_point(tmp_path: Path, effect: Any):
    """Killed anywhere, the telegram is sent once; an unsafe one whose outcome is unknown waits for a person."""

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
            runtime.services.polling = InboxPolling(seconds=0, busy_seconds=3600)  # the same points every time
            async with runtime:
                result = await runtime.run("wire", {"text": "in"}, run_id="k")
                if result.status == "waiting":
                    runtime.answer("k", result.question.id, "again")
                    asked = result.question.reason
                    return await runtime.resume("k"), asked
                return result, ""

        return points.reached, asyncio.run(work())

    write_skill(tmp_path / "calm", "wire", {"a": ["end"]}, ops={"a": "telegraph"})
    points, (calm, _) = drive(tmp_path / "calm")
    assert calm.ok
    assert "op.perform before" in points
    asked = 0
    for number in some(range(1, len(points) + 1), 2):
        folder = tmp_path / f"{number}"
        write_skill(folder, "wire", {"a": ["end"]}, ops={"a": "telegraph"})
        assert in_child(lambda folder=folder, number=number: drive(folder, number)) == KILLED
        _, (outcome, reason) = drive(folder)
        assert outcome.ok, points[number - 1]
        assert (folder / "telegrams").read_text() == "k/1.1.1 Ada: STOP\n"
        asked += reason == "unsafe"
    assert bool(asked) == (effect == "unsafe")


@pytest.mark.sampled
@pytest.mark.parametrize("request_of", ["a person", "a skill"])
def test_an_unsafe_op_with_a_request_is_not_performed_twice(tmp_path: Path, request_of: str):
    """Killed between its performance and the record of it, a person is asked."""
    ops = {"a": "telegraph"}

    class Requesting(Telegraph):
        def plan(self, call: Call, env: Env) -> Plan:
            if request_of == "a person":
                return Plan("r", request=AskRequest("Send?", {"type": "string"}))
            content = Blob.of(b'{"text": "x"}')
            return Plan("r", request=RunRequest("inner", content.hash), blobs=(content,))

        async def perform(self, call: Call, plan: Plan, env: Env) -> dict[str, Any]:
            with self.log.open("a") as log:
                log.write("sent\n")
            return call.ok(sent=1)

    def drive(folder: Path, kill_at: int = 0) -> tuple[list[str], str]:
        points = Failpoints(kill_at)
        op = Requesting(folder / "telegrams", effect="unsafe", forms=(form(effect="unsafe"),))
        answers = [act(SEND), *([finish("inner")] if request_of == "a skill" else []), finish()]

        async def work() -> str:
            runtime = OSRuntime.open(
                folder,
                model=points.wrap(ScriptedModel(answers), "model"),
                journal=points.wrap(SqliteJournal(folder / ".reyn"), "journal"),
                ids=CountingIds(),
                ops=[points.wrap(op, "op", ("perform",))],
            )
            runtime.services.polling = InboxPolling(seconds=0, busy_seconds=3600)
            asked = ""
            async with runtime:
                result = await runtime.run("wire", {"text": "in"}, run_id="k")
                while result.status == "waiting":
                    if result.question.reason == "unsafe":
                        asked = "unsafe"
                    is_pending = bool(runtime.services.journal.drain("k", runtime.runs.find("k").messages_taken))
                    if not is_pending:
                        runtime.answer("k", result.question.id, "done" if result.question.reason == "unsafe" else "yes")
                    result = await runtime.resume("k")
                assert result.ok, result
            return asked

        return points.reached, asyncio.run(work())

    def make(folder: Path) -> Path:
        write_skill(folder, "wire", {"a": ["end"]}, ops=ops)
        write_skill(folder, "inner", {"x": ["end"]})
        return folder

    points, _ = drive(make(tmp_path / "calm"))
    asked = 0
    for number in some(range(1, len(points) + 1), 2):
        folder = make(tmp_path / f"{number}")
        assert in_child(lambda folder=folder, number=number: drive(folder, number)) == KILLED
        _, reason = drive(folder)
        sent = (folder / "telegrams").read_text() if (folder / "telegrams").exists() else ""
        assert sent.count("sent") <= 1, points[number - 1]
        assert sent or reason, "it was never sent, and no question was asked"
        asked += bool(reason)
    assert asked > 2


def test_it_is_documented(log: Path):
    page = op_page(Telegraph(log, permission="tool").spec)
    assert "## telegraph\n\nSend a telegram. Effect: *idempotent*. Permission: `tool`.\n" in page
    assert "| `to` | string |  |" in page
    assert '{"kind":"telegraph","to":"Ada","message":"Arrived."}' in page


# -- changed and missing ----------------------------------------------------------------------------------


def test_a_later_version_of_an_op_does_not_change_a_run(project: Project, log: Path):
    question = {"kind": "ask_user", "question": "Now?"}
    write_skill(project.root, "wire", {"a": ["end"]}, ops={"a": "telegraph, ask_user"})
    answers = [act(question), act(SEND), finish()]
    assert project.run("wire", answers, ops=[Telegraph(log)]).status == "waiting"
    later = Telegraph(log, forms=(form(summary="Send a cable.", arguments=arguments("telegraph", None, {"x": {}}),
                                       example={"kind": "telegraph", "x": 1}),))  # fmt: skip
    with project.open(answers, ops=[later]) as rt:
        rt.answer("k", "1.1.1", "yes")
        assert rt.resume("k").ok
        assert rt.runs.replay("k").events == rt.runs.verify("k").events
    assert "- telegraph(to, message): " in project.model.system_message(0)
    assert "has changed since the run started" in project.model.turn_message(1)


def test_a_run_of_a_kind_that_is_not_installed_stays_readable(project: Project, log: Path, tmp_path: Path):
    write_skill(project.root, "wire", {"a": ["end"]}, ops={"a": "telegraph, ask_user"})
    answers = [act(SEND, {"kind": "ask_user", "question": "Now?"}), finish()]
    assert project.run("wire", answers, ops=[Telegraph(log)]).status == "waiting"
    with project.open(answers) as rt:
        assert [row.status for row in rt.runs.all()] == ["waiting"]
        assert rt.runs.result("k").question.message == "Now?"
        assert rt.runs.verify("k").events == len(project.kinds())
        lines = list(rt.runs.export("k"))
        assert rt.runs.replay("k").missing_ops == ("telegraph",)
        posted = rt.answer("k", "1.1.2", "yes")
        with pytest.raises(OpMissing, match="`telegraph`, which is not installed"):
            rt.resume("k")
        with pytest.raises(OpMissing) as missing:
            rt.resume_answered(posted)
        assert missing.value.hint.startswith("The reply is stored. Install the package")
    (tmp_path / "elsewhere").mkdir()
    with Project(tmp_path / "elsewhere").open([]) as rt:
        assert rt.runs.import_(lines).imported == ("k",)
    with project.open(answers, ops=[Telegraph(log)]) as rt:
        assert rt.resume("k").ok


# -- what an op may do wrong ------------------------------------------------------------------------------


class Odd(Telegraph):
    """Does one thing that an op must not do."""

    def __init__(self, log: Path, *, plan: Any = None, perform: Any = None) -> None:
        super().__init__(log)
        self._plan, self._perform = plan, perform

    def plan(self, call: Call, env: Env) -> Any:
        return self._plan(call) if self._plan else Plan()

    async def perform(self, call: Call, plan: Plan, env: Env) -> Any:
        return self._perform(call) if self._perform else call.ok(sent=1)


TEXT = Blob.of(b"text")
CHANGE = Change("output/a.txt", None, TEXT.hash)


class Indescribable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Exiting(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Markup(str):
    """Text as many libraries return it."""


def fail(error: BaseException) -> Any:
    def raising(_: Call) -> Any:
        raise error

    return raising


@pytest.mark.parametrize(
    ("wrong", "words"),
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
        (lambda call: call.ok(other=1), "a result that its specification excludes"),
        (lambda call: call.ok(sent=Markup("1")), "$.sent: a Markup is not JSON"),
        (fail(Indescribable()), "the op failed: Indescribable"),
        (fail(Exiting()), "the op failed: Exiting"),
        (fail(OSError("x", "y")), "Input/output error"),
        (fail(OpFailed("no", status="ok", error="yes", obj=object())), "not JSON"),
        (fail(OpFailed("no", status="ok", error="yes")), '"error":"no"'),
        (fail(ValueError("\udc80")), "ValueError: \\\\udc80"),
        (fail(GeneratorExit()), "the op failed: GeneratorExit"),
        (lambda call: call.args.clear() or call.ok(sent=1), "the op failed: KeyError"),
    ],
)
def test_whatever_perform_raises_or_returns_is_the_result(project: Project, log: Path, wrong: Any, words: str):
    check_error(project, Odd(log, perform=wrong), words)


def test_an_op_that_cancels_its_own_task_does_not_cancel_the_run(project: Project, log: Path):
    class Cancelling(Odd):
        async def perform(self, call: Call, plan: Plan, env: Env) -> Any:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

    check_error(project, Cancelling(log), "the op failed: CancelledError")


@pytest.mark.parametrize("method", ["plan", "perform"])
def test_a_keyboard_interrupt_that_an_op_raises_in_another_thread_is_the_result(
    project: Project, log: Path, method: str
):
    from concurrent.futures import ThreadPoolExecutor

    op = Odd(log, **{method: fail(KeyboardInterrupt())})
    with ThreadPoolExecutor(1) as pool:
        pool.submit(check_error, project, op, "the op failed: KeyboardInterrupt").result()


def test_a_keyboard_interrupt_in_an_op_interrupts_the_run(project: Project, log: Path):
    ops = [Odd(log, perform=fail(KeyboardInterrupt()))]

    async def run() -> None:
        model = ScriptedModel([act(SEND), finish()])
        async with OSRuntime.open(project.root, model=model, journal=project.journal, ops=ops, trust=True) as rt:
            await rt.run("wire", {"text": "in"})

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (fail(ValueError("no wire")), "the op failed: ValueError: no wire"),
        (fail(SystemExit(3)), "the op failed: SystemExit: 3"),
        (fail(asyncio.CancelledError()), "the op failed: CancelledError"),
        (lambda call: None, "the op's plan is malformed: it is a NoneType"),
        (lambda call: Plan(result={"kind": "file", "status": "ok"}), "a result of another kind"),
        (lambda call: Plan(result=call.ok(sent={1})), "not JSON"),
        (lambda call: Denied(7, "x"), "a rule or reason is a int"),
        (lambda call: Plan(7), "a rule or reason is a int"),
        (lambda call: Plan("\udc80"), "lone surrogate"),
        (lambda call: Plan("r", changes=(CHANGE,), blobs=(TEXT,)), "it has changes but no result"),
        (lambda call: Plan("r", changes=(CHANGE,), result=call.ok()), "content that the plan does not bring"),
        (lambda call: Plan("r", changes=("x",), result=call.ok()), "Expected `object`"),
        (lambda call: Plan("r", changes=(CHANGE,), result=call.error("no"), blobs=(TEXT,)), '"error":"no"'),
        (lambda call: Plan("r", blobs=(Blob(TEXT.hash, b"evil"),)), "does not have the hash of its content"),
        (lambda call: Plan("r", request="x"), "its request is a str"),
        (lambda call: Plan("r", request=AskRequest("?", {"type": "zzz"})), "the schema of its question is invalid"),
        (lambda call: Plan("r", request=AskRequest(7, {})), "Expected `str`"),
        (lambda call: Plan("r", request=RunRequest("s", "0" * 64)), "content that the plan does not bring"),
        (lambda call: Plan("r", (CHANGE,), call.ok(), (TEXT,), AskRequest("?", {})), "both changes and a request"),
    ],
)
def test_whatever_plan_raises_or_returns_is_the_result(project: Project, log: Path, wrong: Any, words: str):
    check_error(project, Odd(log, plan=wrong), words)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (fail(SystemExit(3)), "the op failed: SystemExit: 3"),
        (lambda call: 7, "`target` returned a int, not a str"),
        (lambda call: "\udc80", "lone surrogate"),
    ],
)
def test_whatever_target_raises_or_returns_is_the_result(project: Project, log: Path, wrong: Any, words: str):
    class Targeting(Odd):
        def target(self, call: Call) -> Any:
            return wrong(call)

    op = Targeting(log)
    op.spec = OpSpec("telegraph", "Send a telegram.", "idempotent", "tool", (form(),))
    write_skill(project.root, "wire", {"a": ["end"]}, ops={"a": "telegraph"}, skill_keys="permissions: {tool: true}\n")
    check_error(project, op, words)


def check_error(project: Project, op: Odd, words: str) -> None:
    assert project.run("wire", [act(SEND), finish()], ops=[op]).ok
    shown = project.model.turn_message(1)
    assert '"status":"error"' in shown
    assert words in shown
    assert "/secret/path" not in shown
    with project.open([], ops=[op]) as rt:
        assert rt.runs.replay("k").events == rt.runs.verify("k").events


def test_an_op_cannot_change_what_is_recorded_of_its_call(project: Project, log: Path):
    class Forging(Telegraph):
        def plan(self, call: Call, env: Env) -> Plan:
            call.args["kind"] = "file"
            call.args["to"] = "Eve"
            with pytest.raises(AttributeError):
                env.recorded = RecordedFiles()
            return Plan("r")

    assert project.run("wire", [act(SEND), finish()], ops=[Forging(log)]).ok
    assert [kind for kind in project.kinds() if kind.startswith(("file", "telegraph"))] == [
        "telegraph_started",
        "telegraph_completed",
    ]
    assert log.read_text() == "k/1.1.1 Ada: STOP\n"


def test_the_answer_that_asked_for_an_op_is_durable_before_foreign_code_runs(project: Project, log: Path):
    class Looking(Telegraph):
        def plan(self, call: Call, env: Env) -> Plan:
            assert project.kinds()[-1] == "llm_responded"
            return Plan("r")

    assert project.run("wire", [act(SEND), finish()], ops=[Looking(log)]).ok


def test_an_op_that_hangs_ends_with_the_cancellation_of_its_run(project: Project, log: Path):
    class Hanging(Telegraph):
        async def perform(self, call: Call, plan: Plan, env: Env) -> Any:
            project.journal.post("k", Cancel("enough"))
            await asyncio.Event().wait()

    assert project.run("wire", [act(SEND), finish()], ops=[Hanging(log)]).status == "cancelled"


def test_a_later_version_cannot_drop_the_permission_that_a_run_recorded(project: Project, log: Path):
    question = {"kind": "ask_user", "question": "Now?"}
    keys = "permissions: {tool: true}\n"
    write_skill(project.root, "wire", {"a": ["end"]}, ops={"a": "telegraph, ask_user"}, skill_keys=keys)
    answers = [act(question), act(SEND), finish()]
    assert project.run("wire", answers, ops=[Telegraph(log, permission="tool")]).status == "waiting"
    with project.open(answers, ops=[Telegraph(log)]) as rt:
        rt.answer("k", "1.1.1", "yes")
        assert rt.resume("k").ok
    assert not log.exists()
    assert [event["rule"] for event in project.events("permission_denied")] == ["default: no grant"]


def test_an_op_may_ask_a_person_through_the_kernel(project: Project, log: Path):
    class Asking(Telegraph):
        def plan(self, call: Call, env: Env) -> Plan:
            return Plan("ask", request=AskRequest("Really?", {"enum": ["yes", "no"]}, ("yes", "no")))

        async def perform(self, call: Call, plan: Plan, env: Env) -> dict[str, Any]:
            return call.ok(sent=len(plan.answer))

    answers = [act(SEND), finish()]
    waiting = project.run("wire", answers, ops=[Asking(log)])
    assert (waiting.status, waiting.question.message) == ("waiting", "Really?")
    with project.open(answers, ops=[Asking(log)]) as rt:
        rt.answer("k", waiting.question.id, "yes")
        assert rt.resume("k").ok
        assert rt.runs.replay("k").events == rt.runs.verify("k").events
    assert '"sent":3' in project.model.turn_message(0)


def test_a_file_that_it_writes_is_approved_as_a_rule_asks(project: Project, log: Path):
    class Writing(Telegraph):
        def plan(self, call: Call, env: Env) -> Plan | Denied:
            return plan_write(call, env, "output/a.txt", call.args["message"], sent=4)

    options = {"ops": [Writing(log)], "permissions": {"file.write": [{"ask": "output/"}]}}
    waiting = project.run("wire", [act(SEND), finish()], **options)
    assert (waiting.status, waiting.question.reason) == ("waiting", "approval")
    assert waiting.question.message.startswith(
        "Approve `telegraph`? (permissions.file.write: ask output/)\n"
        "create output/a.txt (4 bytes, in the new folder output)\n--- /dev/null"
    )
    assert not (project.root / "output").exists()
    with project.open([act(SEND), finish()], **options) as rt:
        rt.answer("k", waiting.question.id, "approve")
        assert rt.resume("k").ok
    assert (project.root / "output" / "a.txt").read_text() == "STOP"
    [started] = project.events("telegraph_started")
    assert started["rule"] == "permissions.file.write: ask output/ (approved)"


# -- what it can act on -----------------------------------------------------------------------------------


class Listing(Odd):
    """Lists whom a telegram can be sent to."""

    def __init__(self, log: Path, overview: Any) -> None:
        super().__init__(log)
        self._overview = overview
        forms = {"forms": (form(),), "has_overview": True, "target_field": "to"}
        self.spec = OpSpec("telegraph", "Send a telegram.", "idempotent", **forms)

    def overview(self, query: str, env: Env) -> Any:
        return self._overview(query)


def converse(project: Project, op: Listing, answers: list[dict[str, Any]]) -> str:
    """Run a conversation; return the static part of its first prompt."""
    write_skill(
        project.root,
        "talk",
        {"chat": ["end"]},
        inputs={"chat": "user_message"},
        phase_keys={"chat": "conversation: true\n"},
        ops={"chat": "telegraph"},
    )
    assert project.run("talk", answers, "Hello", ops=[op]).ok
    prompt = project.model.system_message(0)
    with project.open([], ops=[op]) as rt:
        assert rt.runs.replay("k").events == rt.runs.verify("k").events
    return prompt


def test_a_conversation_lists_what_it_can_act_on(project: Project, log: Path):
    ada = Overview("Friends", ("Ada: sails",), (OpTarget("Ada", "sails"),))
    prompt = converse(project, Listing(log, lambda query: ada), [act(SEND | {"to": "Eve"}), act(SEND), finish()])
    assert "# Friends\n- Ada: sails\n" in prompt
    [rejected] = project.events("validation_error")
    assert rejected["class"] == "ops"
    assert len(project.events("telegraph_completed")) == 1


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (fail(ValueError("no wire")), "ValueError: no wire"),
        (fail(SystemExit(3)), "SystemExit: 3"),
        (fail(asyncio.CancelledError()), "CancelledError: "),
        (fail(Exiting()), "Exiting"),
        (fail(ValueError("\udc80")), "ValueError: \\udc80"),
        (lambda query: None, "TypeError: `overview` returned a NoneType, not an `Overview`"),
        (lambda query: Overview(7, ("x",)), "ValidationError: Expected `str`, got `int` - at `$.heading`"),
        (
            lambda query: Overview("x", (), ("Ada",)),
            "ValidationError: Expected `object`, got `str` - at `$.targets[0]`",
        ),
        (lambda query: Overview("\udc80", ()), "ValueError: $.heading: text with a lone surrogate is not JSON"),
        (lambda query: Overview("x", (), (OpTarget("Ada", "", {"to": {"type": "zzz"}}),)), "SchemaInvalid: `type` is"),
    ],
)
def test_a_conversation_continues_without_an_overview_that_is_wrong(
    project: Project, log: Path, wrong: Any, reason: str
):
    converse(project, Listing(log, wrong), [act(SEND), finish()])
    [failed] = project.events("overviews_read")[0]["failed"]
    assert failed.startswith(f"telegraph: {reason}")
    assert len(project.events("telegraph_completed")) == 1


# -- registration -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("run", "`run_started` exists already"),
        ("phase", "`phase_started` exists already"),
        ("step", "`step_started` exists already"),
        ("skill", "`skill_completed` exists already"),
        ("restore", "`restore_started` exists already"),
        ("undo", "`undo_started` exists already"),
        ("child", "`child_started` exists already"),
        ("postprocessor", "`postprocessor_started` exists already"),
        ("file", "already registered"),
        ("mcp", "reserved"),
        ("shell", "already registered"),
        ("Telegraph", "lower-case"),
        ("a" * 41, "lower-case"),
        ("", "lower-case"),
    ],
)
def test_a_kind_whose_name_is_taken_is_refused(tmp_path: Path, log: Path, kind: str, words: str):
    op = Telegraph(log)
    op.spec = OpSpec(kind, "x", "pure", forms=(form(kind),))
    with pytest.raises(OpInvalid, match=words):
        OSRuntime.open(tmp_path, ops=[op])


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"forms": ()}, "has no forms"),
        ({"permission": "everything"}, "unknown permission `everything`"),
        ({"forms": (form(arguments={"type": "object"}),)}, "build `arguments` with"),
        ({"forms": (form("other"),)}, "build `arguments` with"),
        ({"forms": (form(result={"type": "nothing"}),)}, "a schema is invalid"),
        ({"forms": (form(example={"kind": "telegraph"}),)}, "the example is invalid"),
        ({"skill_field": "skill"}, "no field is called `skill`"),
        ({"target_field": "address"}, "no field is called `address`"),
        ({"has_overview": True}, "it has no method `overview`"),
    ],
)
def test_a_specification_that_is_wrong_is_refused(tmp_path: Path, log: Path, spec: dict, words: str):
    with pytest.raises(OpInvalid, match=words):
        OSRuntime.open(tmp_path, ops=[Telegraph(log, **spec)])


def test_what_is_no_op_is_refused(tmp_path: Path):
    with pytest.raises(OpInvalid, match="is not an op"):
        OSRuntime.open(tmp_path, ops=[json])


def test_one_kind_cannot_be_registered_twice(tmp_path: Path, log: Path):
    with pytest.raises(OpInvalid, match="already registered"):
        OSRuntime.open(tmp_path, ops=[Telegraph(log), Telegraph(log)])


# -- a package of its own -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package, installed into a folder of its own."""
    import subprocess

    folder = tmp_path_factory.mktemp("installed")
    source = Path(__file__).parents[2] / "examples" / "notify-op"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", folder, source], check=True, timeout=120)
    return folder


def run_reyn(installed: Path, *words: str, cwd: Path) -> tuple[int, str]:
    import os
    import subprocess

    path = os.pathsep.join([str(installed), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "reyn", *words],
        cwd=cwd, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_a_package_brings_an_op_through_an_entry_point(installed: Path, tmp_path: Path):
    keys = "permissions: {tool: true}\n"
    write_skill(tmp_path, "report", {"a": ["end"]}, ops={"a": "notify"}, skill_keys=keys)
    notify = {"kind": "notify", "channel": "ops", "message": "done"}
    (tmp_path / "answers.jsonl").write_text("\n".join(json.dumps(answer) for answer in (act(notify), finish())))
    (tmp_path / "reyn.yaml").write_text("model: scripted:answers.jsonl\npermissions: {tool: allow}\n")
    assert run_reyn(installed, "lint", "report", cwd=tmp_path)[0] == 0
    code, page = run_reyn(installed, "ops", "notify", cwd=tmp_path)
    assert (code, page.splitlines()[0]) == (0, "# notify")
    assert run_reyn(installed, "trust", "--yes", cwd=tmp_path)[0] == 0
    code, told = run_reyn(installed, "run", "report", '{"text": "in"}', "--run-id", "r", cwd=tmp_path)
    assert code == 0, told
    assert "notify workspace:outbox" in told
    [queued] = (tmp_path / ".reyn" / "workspace" / "r" / "outbox").iterdir()
    assert json.loads(queued.read_text()) == {"channel": "ops", "message": "done"}
    assert run_reyn(installed, "replay", "r", cwd=tmp_path)[0] == 0
    assert "outbox" in run_reyn(installed, "undo", "r", "--dry-run", cwd=tmp_path)[1]
    without = Path(sys.executable).parent  # any folder without the package
    code, told = run_reyn(without, "show", "r", cwd=tmp_path)
    assert (code, "notify workspace:outbox" in told) == (0, True)
    assert run_reyn(without, "verify", "r", cwd=tmp_path)[0] == 0


def test_an_entry_point_that_cannot_be_loaded_is_named(tmp_path: Path):
    info = tmp_path / "broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[reyn.ops]\nbroken = no_such_module:Op\n")
    code, told = run_reyn(tmp_path, "ops", cwd=tmp_path)
    assert (code, "warning: op `broken` (`no_such_module:Op`): it cannot be loaded" in told) == (0, True), told
    assert run_reyn(tmp_path, "runs", cwd=tmp_path)[0] == 0
