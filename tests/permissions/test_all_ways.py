"""Every permission key decides in every way in which a skill can do the thing, with `deny`, `ask` and `allow`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reyn import SyncRuntime, llm_function, tool
from reyn.journal import MemoryJournal
from reyn.models.messages import ToolCall
from reyn.models.protocol import ModelAnswer
from reyn.ops import standard_ops
from reyn.testing import ScriptedModel
from reyn.vocabulary.specs import PERMISSIONS
from tests.kernel.support import Project
from tests.support import act, file, finish, write_skill


@tool(name="bill", effect="unsafe")
def bill_op(amount: int) -> str:
    """Send a bill."""
    return "sent"


@tool(name="post", effect="unsafe", permission="mcp")
def post_op(text: str) -> str:
    """Post a text."""
    return "posted"


class Use(NamedTuple):
    """An op that needs a permission, and a pattern of a rule that covers it."""

    op: dict[str, Any]
    pattern: str = ""


USES = {
    "agent": Use({"kind": "ask_agent", "agent": "clerk", "message": "Well?"}, "clerk"),
    "ask_user": Use({"kind": "ask_user", "question": "Which?"}),
    "exec": Use({"kind": "sandboxed_exec", "argv": ["wc"]}, "wc"),
    "file.read": Use(file("read", "notes/a.md"), "notes/"),
    "file.write": Use(file("write", "reports/a.md", content="a"), "reports/"),
    "index_drop": Use({"kind": "index_drop", "index": "docs"}, "docs"),
    "judge_output": Use({"kind": "judge_output", "output": "o", "rubric": "r"}),
    "mcp": Use({"kind": "post", "text": "hi"}, "post"),
    "memory": Use(file("write", "reyn/memory/tone.md", content="a"), "shared"),
    "python": Use({"kind": "python"}),
    "run_skill": Use({"kind": "run_skill", "skill": "sub", "input": {"text": "x"}}, "sub"),
    "shell": Use({"kind": "shell", "cmd": "wc a"}, "wc*"),
    "skill.write": Use(file("write", "reyn/local/new/notes.md", content="a"), "new"),
    "start_skill": Use({"kind": "start_skill", "skill": "sub", "input": {"text": "x"}}, "sub"),
    "tool": Use({"kind": "bill", "amount": 3}, "bill"),
    "web": Use({"kind": "web_fetch", "url": "https://example.org/"}, "example.org"),
}
SKILL_STEP = "run_skill: {skill: sub, input: {text: x}, on_error: skip}"
STEPS = {
    ("python", "python step"): "- python: {module: ./m.py, function: f, mode: safe, into: data.r, "
    "output_schema: {}, on_error: skip}",
    ("ask_user", "ask_user step"): "- ask_user: {question: Which?, into: data.r, on_error: skip}",
    ("run_skill", "run_skill step"): f"- {SKILL_STEP}",
    ("run_skill", "iterate of sub-runs"): f"- iterate: {{over: data.xs, apply: {{{SKILL_STEP}}}, into: data.r}}",
    (
        "run_skill",
        "parallel sub-runs",
    ): f"- iterate: {{over: data.xs, apply: {{{SKILL_STEP}}}, into: data.r, concurrency: 3}}",
}
"""Steps with a syntax of their own."""
IN_LIST = {"text": "in", "xs": [1]}
REQUESTS = {key: True for key in USES if key not in ("file.read", "file.write", "memory", "skill.write", "python")} | {
    "file.read": ["notes/"],
    "file.write": ["reports/"],
    "memory": ["shared"],
    "skill.write": ["new"],
    "python": [{"module": "./m.py", "function": "f"}],
}


def ways() -> list[tuple[str, str]]:
    """Return each key with each way that the specification of its op allows."""
    specs = {spec.kind: spec for spec in (*standard_ops().vocabulary.ops, bill_op.spec, post_op.spec)}
    found = [*STEPS, ("run_skill", "node"), ("run_skill", "postprocessor"), ("ask_user", "postprocessor")]
    for key, use in USES.items():
        spec = specs[use.op["kind"]]
        if spec.is_offered:
            found += [(key, "conversation")] + ([] if spec.is_for_conversations else [(key, "op")])
        if spec.is_step and spec.is_offered:
            found += [(key, "run_op step"), (key, "iterate of ops")]
    return found


def write_case(root: Path, key: str, way: str) -> Path:
    """Write a skill that uses a permission in a way, with a case without replies; return the folder of the case."""
    op, steps, graph, keys, answers = USES[key].op, "", {"a": ["end"]}, "", [finish()]
    if (key, way) in STEPS:
        steps = STEPS[key, way]
    elif way == "run_op step":
        steps = f"- run_op: {{op: {json.dumps(op)}, on_error: skip}}"
    elif way == "iterate of ops":
        steps = (
            f"- iterate: {{over: data.xs, apply: {{run_op: {{op: {json.dumps(op)}, on_error: skip}}}}, into: data.r}}"
        )
    elif way == "node":
        graph = {"@sub": ["end"]}
    elif way == "postprocessor":
        keys = f"postprocessor:\n  output_schema: note\n  steps:\n    {STEPS[key, f'{key} step']}\n"
    else:
        answers = [act(op), finish()]
    phase = f"preprocessor:\n  {steps}\n" if steps else "conversation: true\n" if way == "conversation" else ""
    note = {"type": "object"}
    write_skill(root, "sub", {"s": ["end"]}, artifacts={"note": note})
    folder = write_skill(
        root,
        "main",
        graph,
        artifacts={"note": note},
        skill_keys=f"permissions: {json.dumps(REQUESTS)}\n{keys}",
        phase_keys={"a": phase},
        inputs={"a": "user_message"} if way == "conversation" else None,
        ops={"a": op["kind"] if way in ("op", "conversation") else ""},
    )
    (folder / "m.py").write_text("def f(artifact):\n    return 1\n")
    case = folder / "cases/alone"
    (case / "files/notes").mkdir(parents=True)
    (case / "files/notes/a.md").write_text("a")
    (case / "input.json").write_text(json.dumps("in" if way == "conversation" else IN_LIST))
    (case / "answers.jsonl").write_text("".join(f"{json.dumps(answer)}\n" for answer in answers))
    return case


def outcomes(root: Path, key: str, case: Path) -> dict[str, list[str]]:
    """Return what the gate does with a rule of each effect; with `ask` also if a reply approves."""
    options: dict[str, Any] = {"journal": MemoryJournal(), "trust": True, "ops": [bill_op, post_op]}
    found = {}
    with SyncRuntime.open(root, model=ScriptedModel([]), **options) as rt:
        for effect in ("deny", "allow", "ask"):
            if effect == "ask":
                shutil.copytree(case, case.with_name("approved"))
                (case.with_name("approved") / "replies.jsonl").write_text('"approve"\n')
            rules = {key: [{effect: USES[key].pattern}] if USES[key].pattern else effect}
            (root / "reyn.yaml").write_text(json.dumps({"permissions": rules}))
            found[effect] = [outcome("\n".join(case.problems)) for case in rt.project.try_cases("main").cases]
    return found


def outcome(problems: str) -> str:
    assert "has errors" not in problems, problems
    if "is denied" in problems:
        return "deny"
    return "ask" if "to: Approve `" in problems else "allow"


def test_the_table_has_every_permission_key():
    assert USES.keys() == {entry.key for entry in PERMISSIONS}
    assert {key for key, _ in ways()} == USES.keys()


@pytest.mark.parametrize(("key", "way"), ways())
def test_a_rule_decides_about_every_way_and_a_case_of_a_test_shows_it(tmp_path: Path, key: str, way: str):
    case = write_case(tmp_path, key, way)
    assert outcomes(tmp_path, key, case) == {"deny": ["deny"], "allow": ["allow"], "ask": ["ask", "allow"]}


# -- what happens ---------------------------------------------------------------------------------------------

NATIVE = [(key, way) for key, way in ways() if (key, way) in STEPS or way in ("node", "postprocessor")]


@pytest.mark.parametrize(("key", "way"), [one for one in NATIVE if one[0] != "python"])
@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_a_step_that_a_rule_asks_about_waits_and_does_what_the_person_decides(
    tmp_path: Path, key: str, way: str, decision: str
):
    write_case(tmp_path, key, way)
    project, rules = Project(tmp_path), {"permissions": {key: "ask"}}
    answers = [finish()] * 3
    waiting = project.run("main", answers, IN_LIST, **rules)
    assert waiting.question.message.startswith(f"Approve `{key}`? (permissions.{key}")
    assert not project.events("child_started")
    with project.open(answers, **rules) as rt:
        rt.answer("k", waiting.question.id, decision)
        result = rt.resume("k")
    done = bool(project.events("child_started")) or (
        result.question is not None and result.question.message == "Which?"
    )
    assert done == (decision == "approve")
    assert result.status == (
        "waiting" if key == "ask_user" and done else "failed" if way == "node" and not done else "finished"
    )
    assert project.is_sound()


def test_a_standing_approval_covers_the_next_run_of_a_step(tmp_path: Path):
    write_case(tmp_path, "run_skill", "node")
    project, rules = Project(tmp_path), {"permissions": {"run_skill": "ask"}}
    waiting = project.run("main", [finish()], **rules)
    with project.open([finish()], **rules) as rt:
        rt.answer("k", waiting.question.id, {"decision": "approve", "always": True})
        assert rt.resume("k").ok
        assert rt.run("main", {"text": "in"}, run_id="next").ok
    assert project.is_sound("next")


class BillingModel:
    name, answer_form, takes_time = "billing", "tools", False

    async def complete(self, request: Any) -> ModelAnswer:
        if any(message.role == "tool" for message in request.messages):
            return ModelAnswer("done")
        return ModelAnswer("", tool_calls=(ToolCall("c", "charge", '{"amount": 3}'),))


@pytest.mark.parametrize("is_derived", [False, True])
@pytest.mark.parametrize(("effect", "charged"), [("deny", []), ("ask", []), ("allow", [3])])
def test_a_rule_decides_about_the_tool_of_a_function(
    tmp_path: Path, effect: str, charged: list[int], *, is_derived: bool
):
    done: list[int] = []

    @tool(effect="unsafe")
    def charge(amount: int) -> str:
        """Charge."""
        done.append(amount)
        return "charged"

    rules, options = {"tool": effect}, {"model": BillingModel(), "journal": MemoryJournal(), "trust": True}
    with SyncRuntime.open(tmp_path, **options, permissions={} if is_derived else rules) as opened:
        rt = opened.derive(permissions=rules) if is_derived else opened

        @llm_function(runtime=rt, toolkit=[charge])
        def pay(request: str) -> str:
            """Pay."""

        if effect == "ask":
            with pytest.raises(Exception, match="Approve"):
                pay("now")
        else:
            pay("now")
    assert done == charged
