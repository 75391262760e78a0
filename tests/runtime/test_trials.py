"""The cases of a skill run with scripted answers, in memory, and without effects outside of a temporary folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from reyn.journal import MemoryJournal
from reyn.kernel.runtime_types import SystemClock
from reyn.ops import Call, Env, OpForm, OpSpec, Plan
from reyn.runtime import trials
from reyn.skills.cases import TrialReport, read_cases
from reyn.testing import ScriptedModel, SteppingClock
from reyn.vocabulary.schemas import arguments, result
from tests.packages.support import make_venv, site_of
from tests.support import NOTE as NOTE_SCHEMA
from tests.support import abort, act, file, finish, go, question, two_phases, with_ops, write_skill

NOTE = {"type": "note", "data": {"text": "in"}}
LISTS = file("glob", "*")


def add_case(folder: Path, name: str, answers: list, expected: Any = None, **files: Any) -> None:
    case = folder / "cases" / name
    case.mkdir(parents=True, exist_ok=True)
    (case / "input.json").write_text(json.dumps(files.pop("input", NOTE)))
    (case / "answers.jsonl").write_text("".join(f"{json.dumps(answer)}\n" for answer in answers))
    if expected is not None:
        (case / "expected.json").write_text(json.dumps(expected))
    for path, content in files.items():
        target = case / path.replace("__", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)


def tried(root: Path, skill: str, **options: Any) -> TrialReport:
    with SyncRuntime.open(root, model=ScriptedModel([]), journal=MemoryJournal(), **options) as rt:
        return rt.project.try_cases(skill)


def problems(root: Path, skill: str, **options: Any) -> str:
    return "\n".join(tried(root, skill, **options).failures)


def test_a_case_passes_if_the_run_returns_what_it_expects(tmp_path: Path):
    two_phases(tmp_path)
    expected = {"status": "finished", "path": ["first", "second"], "artifact": {"type": "note", "data": {"text": "x"}}}
    add_case(tmp_path / "reyn/project/pair", "good", [go("second"), finish("x")], expected)
    add_case(tmp_path / "reyn/project/pair", "brief", [go("second"), finish("x")])
    report = tried(tmp_path, "pair")
    assert (report.passed, report.summary) == (True, "2 of 2 cases passed")
    assert not (tmp_path / ".reyn").exists()


@pytest.mark.parametrize(
    ("answers", "expected", "problem"),
    [
        ([finish(), finish(), finish()], {}, "it is failed"),
        ([finish(), finish(), finish()], {}, "$.control"),
        ([go("second"), finish()], {"path": ["first"]}, "it visits first → second, expected first"),
        ([go("second"), finish("a")], {"artifact": {"type": "note", "data": {"text": "b"}}}, 'expected {"type":"note"'),
        ([go("second"), finish(), finish()], {}, "it uses 2 of 3 answers"),
        ([go("second")], {}, "needs answer 2"),
        ([go("second"), finish()], {"status": "aborted"}, "it is finished, expected aborted"),
    ],
)
def test_a_case_that_fails_says_how(tmp_path: Path, answers: list, expected: dict, problem: str):
    two_phases(tmp_path)
    add_case(tmp_path / "reyn/project/pair", "bad", answers, expected)
    assert problem in problems(tmp_path, "pair")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("input.json", "{", "cases/odd/input.json"),
        ("answers.jsonl", "[]", "cases/odd/answers.jsonl:1"),
        ("expected.json", '{"statuss": "x"}', "unknown field `statuss`"),
        ("replies.jsonl", "nope", "cases/odd/replies.jsonl:1"),
    ],
)
def test_a_broken_case_fails_and_the_others_run(tmp_path: Path, name: str, content: str, problem: str):
    two_phases(tmp_path)
    folder = tmp_path / "reyn/project/pair"
    add_case(folder, "good", [go("second"), finish()])
    add_case(folder, "odd", [go("second"), finish()])
    (folder / "cases/odd" / name).write_text(content)
    report = tried(tmp_path, "pair")
    assert problem in "\n".join(report.failures)
    assert [case.passed for case in report.cases] == [True, False]


def test_a_case_without_an_input_says_so(tmp_path: Path):
    two_phases(tmp_path)
    case = tmp_path / "reyn/project/pair/cases/bare"
    case.mkdir(parents=True)
    (case / "answers.jsonl").write_text("")
    assert "`input.json` is missing" in problems(tmp_path, "pair")


def test_files_of_a_case_are_read_and_writes_stay_in_its_folder(tmp_path: Path):
    folder = write_skill(
        tmp_path, "s", {"a": ["end"]}, ops={"a": "file"}, skill_keys="permissions: {file.write: [reports/]}\n"
    )
    (tmp_path / "prices.csv").write_text("of the project")
    ops = [
        file("read", "prices.csv"),
        file("write", "output/a.txt", content="a"),
        file("write", "reports/b.txt", content="b"),
    ]
    decided = finish("x") | {"control_ir": ops}
    add_case(folder, "c", [decided], files__prices_csv="x")
    (folder / "cases/c/files/prices_csv").rename(folder / "cases/c/files/prices.csv")
    before = sorted(tmp_path.rglob("*"))
    assert problems(tmp_path, "s", permissions={"file.write": [{"allow": "reports/"}]}) == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_questions_are_answered_from_the_case(tmp_path: Path):
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "ask_user"})
    add_case(folder, "c", [act(question("Which?")), finish("x")], **{"replies.jsonl": '"blue"\n'})
    assert problems(tmp_path, "s") == ""
    (folder / "cases/c/replies.jsonl").unlink()
    assert "it is waiting" in problems(tmp_path, "s")


@pytest.mark.parametrize("backoff", ["", ", backoff: 1h", ", backoff: 24h"])
def test_a_case_does_not_wait_before_a_repetition(tmp_path: Path, backoff: str):
    keys = f"nodes:\n  a: {{retry: {{max: 2{backoff}}}}}\n"
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, skill_keys=keys)
    add_case(folder, "c", [abort(), abort(), finish("x")], {"path": ["a", "a", "a"]})
    assert problems(tmp_path, "s") == ""
    add_case(folder, "c", [abort(), abort(), abort()], {"status": "aborted"})
    assert problems(tmp_path, "s") == ""
    add_case(folder, "c", [abort(), abort(), finish("x")], **{"replies.jsonl": '"now"\n'})
    assert "it uses 0 of 1 replies" in problems(tmp_path, "s")


NESTED = NOTE_SCHEMA | {"properties": {"text": {}, "more": {"type": "object", "required": ["why"]}}}
WITHOUT_WHY = {"type": "note", "data": {"text": "x", "more": {}}}
LONG_FILE = with_ops(finish("x"), file("write", "output/x", content="y" * 2000))
SETTINGS: dict[str, tuple[str, list, str]] = {
    "strict": ("strict: true", [finish() | {"artifact": WITHOUT_WHY}], "'why' is missing"),
    "retries": ("max_phase_retries: 0", ["no", finish()], "1 answer rejected"),
    "visits": ("max_phase_visits: 1", [go("a"), go("a"), finish()], ""),
    "act turns": ("{max_act_turns: 1, limits: {on_limit: stop}}", [act(LISTS), act(LISTS), finish()], "it is limited"),
    "no progress": ("limits: {no_progress: 2}", [go("a", "in"), go("a", "in"), finish()], "it is "),
    "size of files": ("sizes: {file_bytes: 1000}", [LONG_FILE], "needs answer 2"),
    "size of answers": ("sizes: {answer_ops: 1}", [act(LISTS, LISTS)], "more than the 1 allowed"),
    "prompts": ("context: {max_prompt_tokens: 5}", [finish()], "it is limited"),
    "handoffs": ("context: {ask_handoff: true}", [finish() | {"handoff": {"goal": "g"}}], ""),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_case_has_the_result_of_a_run_with_the_settings_of_the_project(tmp_path: Path, name: str):
    settings, answers, problem = SETTINGS[name]
    (tmp_path / "reyn.yaml").write_text(settings)
    folder = write_skill(tmp_path, "s", {"a": ["a", "end"]}, ops={"a": "file"}, artifacts={"note": NESTED})
    with SyncRuntime.open(tmp_path, model=ScriptedModel(answers), journal=MemoryJournal()) as rt:
        status = rt.run("s", NOTE).status
    add_case(folder, "c", answers)
    found = problems(tmp_path, "s")
    assert (status == "finished") == (found == "")
    assert problem in found, found


def test_code_of_a_case_has_the_packages_of_the_environment_of_its_skill(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("environments: {office: {path: venv}}\n")
    (site_of(make_venv(tmp_path / "venv")) / "parcel.py").write_text("WEIGHT = 42\n")
    step = "preprocessor:\n  - python: {module: ./m.py, function: f, into: data.text}\n"
    keys = "environment: office\npermissions: {python: [{module: ./m.py, function: f}]}\n"
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, phase_keys={"a": step}, skill_keys=keys)
    (folder / "m.py").write_text("import parcel\ndef f(artifact):\n    return str(parcel.WEIGHT)\n")
    add_case(folder, "c", [finish("x")])
    assert problems(tmp_path, "s", trust=True) == ""
    assert "the project is not trusted" in problems(tmp_path, "s", trust=False)


# -- the means of a case -------------------------------------------------------------------------------

STATUSES = ("finished", "failed", "aborted", "cancelled", "limited", "waiting")
ASKS = act(question("Which?"))
MEANS: dict[str, tuple[list, str, str]] = {
    "no answers": ([], "", "needs answer 1"),
    "too few answers": ([go("second")], "", "needs answer 2"),
    "too many answers": ([go("second"), finish(), finish()], "", "it uses 2 of 3 answers"),
    "too few after a question": ([go("second"), ASKS], '"blue"\n', "needs answer 3"),
    "too many replies": ([go("second"), ASKS, finish()], '"blue"\n"red"\n', "it uses 1 of 2 replies"),
    "an invalid answer": (["no", "no"], "", "needs answer 3"),
    "a reply that does not fit": ([go("second"), ASKS, finish()], "{}\n", "does not fit the question"),
}


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("fault", MEANS)
def test_a_case_whose_own_script_or_replies_fail_is_red_whatever_it_expects(tmp_path: Path, fault: str, status: str):
    folder = write_skill(tmp_path, "pair", {"first": ["second"], "second": ["end"]}, ops={"second": "ask_user"})
    answers, replies, problem = MEANS[fault]
    add_case(folder, "c", answers, {"status": status}, **({"replies.jsonl": replies} if replies else {}))
    failures = problems(tmp_path, "pair")
    assert problem in failures or (fault == "too many answers" and f"expected {status}" in failures)


def test_a_script_that_ends_in_a_sub_run_fails_the_case(tmp_path: Path):
    write_skill(tmp_path, "sub", {"s": ["end"]}, artifacts={"note": {"type": "object"}})
    step = "run_skill: {skill: sub, input: {text: x}, into: data.r, on_error: skip}"
    keys = f"postprocessor:\n  output_schema: note\n  steps:\n    - {step}\n"
    folder = write_skill(tmp_path, "top", {"a": ["end"]}, skill_keys=keys, artifacts={"note": {"type": "object"}})
    add_case(folder, "c", [finish()], {"status": "failed"})
    assert "needs answer 2" in problems(tmp_path, "top")


@pytest.mark.parametrize("status", STATUSES)
def test_a_question_without_a_reply_fails_a_case_that_does_not_expect_it(tmp_path: Path, status: str):
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "ask_user"})
    add_case(folder, "c", [ASKS], {"status": status})
    assert bool(problems(tmp_path, "s")) == (status != "waiting")


def test_a_case_that_takes_too_long_fails_even_if_it_expects_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock = SteppingClock(step=20_000_000)
    monkeypatch.setattr(SystemClock, "now", lambda self: clock.now())
    two_phases(tmp_path)
    add_case(tmp_path / "reyn/project/pair", "c", [go("second")], {"status": "limited"})
    assert problems(tmp_path, "pair") == "case `c`: it was stopped: a case may take 10 s"


# -- permissions ---------------------------------------------------------------------------------------

FETCH = {"kind": "web_fetch", "url": "https://example.org/"}
OPS: dict[str, tuple[dict, str, str]] = {
    "zone": (file("write", "output/a.txt", content="a"), "file.write", "output/"),
    "request": (file("write", "reports/a.txt", content="a"), "file.write", "reports/"),
    "root": (file("write", "a.txt", content="a"), "file.write", "a.txt"),
    "delete": (file("delete", "notes.md"), "file.write", "notes.md"),
    "read": (file("read", "notes.md"), "file.read", "notes.md"),
    "program": ({"kind": "sandboxed_exec", "argv": ["touch", "x"]}, "exec", "touch"),
    "shell": ({"kind": "shell", "cmd": "touch x"}, "shell", "touch*"),
    "web": (FETCH, "web", "example.org"),
    "question": (question("Which?"), "ask_user", ""),
}
"""An op, the permission that decides about it, and a pattern of a rule that covers it."""
ASKED_TWICE = ("question",)
"""Ops that ask a question of their own after the approval."""

each_op = pytest.mark.parametrize("name", OPS)


def with_op(root: Path, name: str, replies: list, expected: Any = None) -> Path:
    """Write a skill with a case that executes an op, and the replies of the case."""
    op, _, _ = OPS[name]
    keys = "permissions: {file.write: [reports/, a.txt, notes.md], exec: true, shell: true, web: true}\n"
    folder = write_skill(root, "s", {"a": ["end"]}, ops={"a": op["kind"]}, skill_keys=keys)
    lines = "".join(f"{json.dumps(reply)}\n" for reply in replies)
    files = {"files/notes.md": "notes"} | ({"replies.jsonl": lines} if lines else {})
    add_case(folder, "c", [act(op), finish("x")], expected, **files)
    return folder


def rules(name: str, effect: str) -> dict[str, Any]:
    _, key, pattern = OPS[name]
    return {key: [{effect: pattern}] if pattern else effect}


def own_replies(name: str) -> list:
    return ["blue"] if name in ASKED_TWICE else []


@each_op
@pytest.mark.parametrize("effect", ["allow", "ask", "deny"])
def test_the_rules_of_the_project_decide_about_every_op_of_a_case(tmp_path: Path, name: str, effect: str):
    with_op(
        tmp_path, name, {"allow": [], "ask": ["approve"], "deny": []}[effect] + own_replies(name) * (effect != "deny")
    )
    found = problems(tmp_path, "s", trust=True, permissions=rules(name, effect))
    assert ("is denied" in found) == (effect == "deny"), found
    assert (found == "") == (effect != "deny")


@each_op
def test_an_op_that_a_rule_asks_about_needs_a_reply(tmp_path: Path, name: str):
    with_op(tmp_path, name, [])
    found = problems(tmp_path, "s", trust=True, permissions=rules(name, "ask"))
    assert "it is waiting for a reply in `replies.jsonl` to: Approve" in found


@each_op
@pytest.mark.parametrize("effect", ["allow", "ask"])
def test_a_reply_that_is_left_over_fails_the_case(tmp_path: Path, name: str, effect: str):
    needed = [*(["approve"] if effect == "ask" else []), *own_replies(name)]
    with_op(tmp_path, name, [*needed, "approve"])
    found = problems(tmp_path, "s", trust=True, permissions=rules(name, effect))
    assert f"it uses {len(needed)} of {len(needed) + 1} replies" in found


@pytest.mark.parametrize("name", [name for name, (_, key, _) in OPS.items() if key in ("exec", "shell")])
def test_an_op_without_a_grant_fails_the_case(tmp_path: Path, name: str):
    with_op(tmp_path, name, [])
    assert "(default: no grant)" in problems(tmp_path, "s")


def test_a_case_may_expect_that_the_rules_deny_an_op(tmp_path: Path):
    with_op(tmp_path, "zone", [], {"denied": ["file write"]})
    assert problems(tmp_path, "s", permissions=rules("zone", "deny")) == ""
    assert problems(tmp_path, "s") == "case `c`: the rules deny no op, expected file write"


@pytest.mark.parametrize("reply", ["yes", {"decision": "approve", "args": {}}])
def test_a_reply_that_a_question_does_not_take_fails_the_case(tmp_path: Path, reply: Any):
    with_op(tmp_path, "zone", [reply, "approve"])
    text = json.dumps(reply, separators=(",", ":"))
    assert f"reply 1, {text}, does not fit the question" in problems(tmp_path, "s", permissions=rules("zone", "ask"))


def test_a_rejected_approval_is_part_of_a_case(tmp_path: Path):
    with_op(tmp_path, "zone", [{"decision": "reject", "remark": "not now"}])
    assert problems(tmp_path, "s", permissions=rules("zone", "ask")) == ""


def test_standing_approvals_do_not_count_in_a_case(tmp_path: Path):
    with_op(tmp_path, "zone", [])
    model, journal = ScriptedModel([act(OPS["zone"][0]), finish("x")]), MemoryJournal()
    people = Person({"decision": "approve", "always": True})
    options: dict[str, Any] = {"journal": journal, "permissions": rules("zone", "ask")}
    with SyncRuntime.open(tmp_path, model=model, people=people, **options) as rt:
        assert rt.run("s", NOTE).ok
        assert len(rt.permissions.approvals()) == 1
        assert not rt.project.try_cases("s").passed


class Person:
    """Replies to questions in order."""

    def __init__(self, *replies: Any) -> None:
        self._replies = iter(replies)

    async def ask(self, run_id: str, question: Any) -> Any:
        return next(self._replies)


def test_grants_of_a_project_that_is_not_trusted_have_no_effect_in_a_case(tmp_path: Path):
    with_op(tmp_path, "request", [])
    (tmp_path / "reyn.yaml").write_text("permissions: {file.write: [{allow: reports/}]}\n")
    assert "trust the project, whose configuration grants it" in problems(tmp_path, "s")
    assert problems(tmp_path, "s", trust=True) == ""


def test_the_requests_of_a_draft_are_granted_in_its_cases(tmp_path: Path):
    """The operator sees the requests when the draft is installed, and can grant them only then."""
    folder = with_op(tmp_path, "request", [])
    draft = tmp_path / ".reyn/workspace/run/draft/s"
    draft.parent.mkdir(parents=True)
    folder.rename(draft)
    with SyncRuntime.open(tmp_path, model=ScriptedModel([]), journal=MemoryJournal()) as rt:
        assert rt.services.try_folder(draft).passed
    denied = {"file.write": [{"deny": "reports/"}]}
    with SyncRuntime.open(tmp_path, model=ScriptedModel([]), journal=MemoryJournal(), permissions=denied) as rt:
        assert not rt.services.try_folder(draft).passed


@pytest.mark.parametrize(
    "op",
    [
        {"kind": "sandboxed_exec", "argv": ["touch", "OUTSIDE/owned"]},
        {"kind": "shell", "cmd": "touch OUTSIDE/owned"},
        {"kind": "web_fetch", "url": "http://127.0.0.1:9/"},
    ],
    ids=lambda op: op["kind"],
)
@pytest.mark.parametrize("effect", ["allow", "ask"])
def test_a_case_has_no_effects_outside(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, op: dict, effect: str
):
    """Whatever the skill requests, the project grants and the case approves."""
    outside = tmp_path_factory.mktemp("outside")
    op = json.loads(json.dumps(op).replace("OUTSIDE", str(outside)))
    keys = "permissions: {exec: true, shell: true, web: true}\n"
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": op["kind"]}, skill_keys=keys)
    replies = {"replies.jsonl": '"approve"\n'} if effect == "ask" else {}
    add_case(folder, "c", [act(op), finish("x")], **replies)
    grants: dict[str, Any] = {"exec": effect, "shell": effect, "web": [{effect: "private:127.0.0.1:9"}]}
    if effect == "ask":
        grants["web"] += [{"allow": "127.0.0.1:9"}]
    results: list[dict] = []
    keep_results(monkeypatch, results)
    assert problems(tmp_path, "s", trust=True, permissions=grants) == ""
    assert [(one["status"], one["rule"]) for one in results] == [("denied", "default: no effects in a case")]
    assert list(outside.iterdir()) == []


def keep_results(monkeypatch: pytest.MonkeyPatch, results: list[dict]) -> None:
    """Collect the results of the ops of all cases."""
    check = trials._problems

    def look(case: Any, result: Any, runs: Any, *means: Any) -> Any:
        done = [one for one in runs.events(result.run_id) if one.kind.endswith("_completed") and one.data.get("result")]
        results.extend(json.loads(runs.content(one.data["result"])) for one in done)
        return check(case, result, runs, *means)

    monkeypatch.setattr(trials, "_problems", look)


class Horn:
    """An op from outside the package that needs no permission."""

    form = OpForm(None, "Blow.", arguments("horn", None, {}), "unsafe", result("horn", None, {}), {"kind": "horn"})
    spec = OpSpec("horn", "Blow.", "unsafe", forms=(form,))

    def __init__(self) -> None:
        self.blown = 0

    def plan(self, call: Call, env: Env) -> Plan:
        return Plan("free")

    async def perform(self, call: Call, plan: Plan, env: Env) -> dict:
        self.blown += 1
        return call.ok()


def test_ops_of_other_packages_are_not_executed(tmp_path: Path):
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "horn"})
    add_case(folder, "c", [act({"kind": "horn"}), finish("x")])
    horn = Horn()
    assert problems(tmp_path, "s", ops=[horn]) == ""
    assert horn.blown == 0


def test_sub_skills_of_the_project_run_in_a_case(tmp_path: Path):
    two_phases(tmp_path)
    folder = write_skill(tmp_path, "outer", {"a": ["@pair"], "@pair": ["end"]})
    add_case(folder, "c", [go("@pair"), go("second"), finish("deep")])
    assert problems(tmp_path, "outer") == ""


def test_a_changed_case_is_tried_again(tmp_path: Path):
    two_phases(tmp_path)
    folder = tmp_path / "reyn/project/pair"
    add_case(folder, "c", [go("second"), finish()])
    with SyncRuntime.open(tmp_path, model=ScriptedModel([]), journal=MemoryJournal()) as rt:
        assert rt.project.try_cases("pair").passed
        add_case(folder, "c", [go("second")])
        assert not rt.project.try_cases("pair").passed


def test_a_changed_sub_skill_is_tried_again(tmp_path: Path):
    two_phases(tmp_path)
    folder = write_skill(tmp_path, "outer", {"a": ["@pair"], "@pair": ["end"]})
    add_case(folder, "c", [go("@pair"), go("second"), finish("deep")])
    with SyncRuntime.open(tmp_path, model=ScriptedModel([]), journal=MemoryJournal()) as rt:
        assert rt.project.try_cases("outer").passed
        (tmp_path / "reyn/project/pair/skill.md").write_text("no skill")
        assert not rt.project.try_cases("outer").passed


def test_a_link_out_of_the_skill_is_not_read_as_a_case(tmp_path: Path):
    two_phases(tmp_path)
    folder = tmp_path / "reyn/project/pair"
    add_case(folder, "c", [go("second"), finish()])
    (tmp_path / "outside.json").write_text(json.dumps(NOTE))
    (folder / "cases/c/input.json").unlink()
    (folder / "cases/c/input.json").symlink_to(tmp_path / "outside.json")
    [broken] = read_cases(folder)
    assert "leads out of" in str(broken)


# -- temporary folders --------------------------------------------------------------------------------

KILLED_TRIAL = """
import os
import signal
import sys

from reyn import SyncRuntime
from reyn.runtime import trials

trials.Trials._trial_services = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
with SyncRuntime.open(sys.argv[1]) as rt:
    rt.project.try_cases("pair")
"""


def folders(temporary: Path) -> list[str]:
    return [path.name for path in temporary.glob("reyn-trial-*")]


def test_the_folder_of_a_killed_trial_is_removed_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    two_phases(tmp_path)
    add_case(tmp_path / "reyn/project/pair", "good", [go("second"), finish("x")], seed__a="x")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    command = [sys.executable, "-c", KILLED_TRIAL, str(tmp_path)]
    killed = subprocess.run(command, env=os.environ | {"TMPDIR": str(temporary)}, check=False)
    assert killed.returncode == -9
    assert len(folders(temporary)) == 1
    (tmp_path / "elsewhere").mkdir()
    (temporary / "reyn-trial-link").symlink_to(tmp_path / "elsewhere")
    assert tried(tmp_path, "pair").passed
    assert folders(temporary) == ["reyn-trial-link"]  # a link is none of ours
    assert (tmp_path / "elsewhere").is_dir()


def test_the_folder_of_a_trial_in_progress_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with trials._temporary_folder() as folder:
        trials.remove_abandoned_folders()
        assert folder.is_dir()
    assert folders(tmp_path) == []


def test_a_folder_that_another_trial_removed_before_it_was_locked_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    create, removed = tempfile.mkdtemp, []

    def create_and_lose(prefix: str) -> str:
        folder = create(prefix=prefix)
        if not removed:
            removed.append(folder)
            trials.remove_abandoned_folders()
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", create_and_lose)
    with trials._temporary_folder() as folder:
        assert folder.is_dir()
        assert str(folder) not in removed
