"""Scenarios for kill tests: small skills that together use every feature of a run."""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec.structs import replace

from reyn import tool
from reyn.journal.kinds import AskRequest
from reyn.ops import Call, Env, OpForm, OpSpec, Plan, standard_ops
from reyn.ops.execution import plan_op
from reyn.vocabulary.schemas import arguments, path, result, text
from tests.kernel.kill.scenario import FastClock, Scenario
from tests.support import act, file, finish, go, question, two_phases, with_ops, write_skill

RUN = "killed-0"
LOG = "output/log.txt"
SENT = "output/out/sent.txt"
TWICE = file("edit", LOG, old_string="x", new_string="xx", replace_all=True)
"""An edit that doubles the log each time, so that repetitions are visible."""


def pair(folder: Path) -> Scenario:
    """Two phases."""
    scenario = Scenario(folder)
    two_phases(scenario.seed)
    return scenario.executes("pair", [go("second"), finish()])


def with_state(folder: Path) -> Scenario:
    """A loop whose artifacts a state counts, with rules that read it."""
    scenario = Scenario(folder)
    note = {
        "type": "object",
        "properties": {"text": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["text"],
    }
    graph = {"write": ["check"], "check": [{"when": "state.spent >= 3", "to": "end"}, {"else": "write"}]}
    state = "state: {all: {append: note, max: 2}, spent: {sum: note.data.n}}\n"
    keys = {"write": "reads: [state.all, state.spent]\n"}
    skill = write_skill(scenario.seed, "count", graph, artifacts={"note": note}, skill_keys=state, phase_keys=keys)
    (skill / "phases" / "check.md").write_text("---\ntype: phase\nname: check\ninput: note\n---\n")
    answers = [go("check", str(number)) for number in range(3)]
    for answer in answers:
        answer["artifact"]["data"]["n"] = 1
    return scenario.executes("count", answers)


def with_node_errors(folder: Path) -> Scenario:
    """A node that is repeated after a wait, and whose second error goes to a handler."""
    scenario = _with_files(folder)
    scenario.clock, scenario.is_concurrent = FastClock(), True  # the wait ends after some hundredths of a second
    keys = "nodes: {a: {retry: {max: 1, on: [rejected], backoff: 12h}, on_error: {rejected: b}}}\n"
    graph, ops = {"a": ["end"], "b": ["end"]}, {"a": "file", "b": "file"}
    write_skill(scenario.seed, "mend", graph, inputs={"b": "node_error"}, ops=ops, skill_keys=keys)
    answers = [act(TWICE), "no", act(TWICE), "no", with_ops(finish(), TWICE)]
    return scenario.executes("mend", answers, max_phase_retries=0)


def rejected_and_looping(folder: Path) -> Scenario:
    """Rejected answers and a loop."""
    scenario = Scenario(folder)
    write_skill(scenario.seed, "loop", {"write": ["check"], "check": ["write", "end"]})
    answers = [go("check"), "no JSON at all", go("nowhere"), go("write", "again"), go("check"), finish()]
    return scenario.executes("loop", answers)


def concurrent_runs(folder: Path) -> Scenario:
    """Three concurrent runs that share commits."""
    scenario = Scenario(folder)
    two_phases(scenario.seed)
    return scenario.executes("pair", [go("second"), finish()], runs=3)


def stopping_and_continuing(folder: Path) -> Scenario:
    """A run that fails, is retried, reaches a limit and has it raised through the inbox."""
    scenario = Scenario(folder)
    write_skill(scenario.seed, "stop", {"turn": ["turn", "end"]})
    answers = ["no", "no", go("turn", "1"), go("turn", "2"), finish()]
    return scenario.executes("stop", answers, max_phase_retries=1, max_phase_visits=2)


def _with_files(folder: Path) -> Scenario:
    scenario = Scenario(folder)
    (scenario.seed / "output").mkdir()
    (scenario.seed / LOG).write_text("x\n")
    (scenario.seed / "output/old.txt").write_text("old\n")
    (scenario.seed / "output/old.txt").chmod(0o640)
    return scenario


def writing(folder: Path) -> Scenario:
    """Writes, edits and deletes in act turns, and in a decision that a failing op defers."""
    scenario = _with_files(folder)
    write_skill(scenario.seed, "write", {"a": ["b"], "b": ["end"]}, ops={"a": "file", "b": "file"})
    answers = [
        act(file("write", "workspace:deep/er/one.txt", content="one\n"), TWICE, file("delete", "output/old.txt")),
        with_ops(go("b"), TWICE, file("read", "nowhere.txt")),
        with_ops(go("b"), file("write", "workspace:deep/er/one.txt", content="two\n")),
        with_ops(finish(), file("read", LOG)),
    ]
    return scenario.executes("write", answers)


def working(folder: Path) -> Scenario:
    """Work that a visit must do, in act turns and in a decision, and a field that an op fills."""
    scenario = _with_files(folder)
    write_skill(
        scenario.seed,
        "work",
        {"a": ["end"]},
        ops={"a": "file"},
        phase_keys={"a": "must: [file.read, file.edit]\n"},
        skill_keys="nodes: {a: {fill: {text: ops.file.edit.path}}}\n",
    )
    answers = [finish(), act(file("read", LOG)), with_ops(finish(), TWICE)]
    return scenario.executes("work", answers)


def concurrent_writers(folder: Path) -> Scenario:
    """Two concurrent runs that write files with the same names."""
    scenario = _with_files(folder)
    write_skill(scenario.seed, "write", {"a": ["end"]}, ops={"a": "file"})
    mine = file("edit", "workspace:mine.txt", old_string="x", new_string="xx", replace_all=True)
    answers = [act(file("write", "workspace:mine.txt", content="x\n"), mine), with_ops(finish(), mine)]
    return scenario.executes("write", answers, runs=2)


def asking_an_absent_user(folder: Path) -> Scenario:
    """Questions without a user: the run waits, and an operator replies through the inbox."""
    scenario = _with_files(folder)
    write_skill(scenario.seed, "ask", {"a": ["b"], "b": ["end"]}, ops={"a": "file, ask_user", "b": "file, ask_user"})
    answers = [act(TWICE, question("sure?"), TWICE), go("b"), with_ops(finish(), question("really?")), finish()]
    return scenario.executes("ask", answers)


def asking_a_present_user(folder: Path) -> Scenario:
    """The same questions with a user who replies."""
    scenario = asking_an_absent_user(folder)
    scenario.has_user = True
    return scenario


def approving(folder: Path) -> Scenario:
    """Changes that need an approval, in a phase and in a sub-run: an operator decides through the inbox."""
    scenario = _with_files(folder)
    write_skill(scenario.seed, "child", {"c": ["end"]}, ops={"c": "file"})
    write_skill(scenario.seed, "ask", {"a": ["@child"], "@child": ["end"]}, ops={"a": "file"})
    answers = [
        act(TWICE, file("write", "workspace:free.txt", content="free\n"), file("delete", "output/old.txt")),
        go("@child"),
        with_ops(finish(), TWICE),  # the child
    ]
    return scenario.executes("ask", answers, permissions={"file.write": [{"ask": "output/"}]})


def approving_at_once(folder: Path) -> Scenario:
    """The same with a user who decides immediately."""
    scenario = approving(folder)
    scenario.has_user = True
    return scenario


def expiring(folder: Path) -> Scenario:
    """The same with approvals that expire before anyone decides."""
    scenario = approving(folder)
    scenario.clock = FastClock()
    scenario.settings["limits"] = {"approval_seconds": 1}
    scenario.answers.append(finish())  # the child, after its op was not approved
    return scenario


def reviewing(folder: Path) -> Scenario:
    """Decisions that wait for a reviewer, who sends one back, in a phase and in a sub-run; steps that ask a person."""
    scenario = _with_files(folder)
    required = "requires_approval: true\n"
    before = f"{required}preprocessor:\n  - ask_user: {{question: Which tone?, into: data.tone}}\n"
    after = (
        "postprocessor:\n  output_schema: note\n  steps:\n"
        "    - ask_user: {question: Send it?, show: data, into: data.sent}\n"
    )
    write_skill(scenario.seed, "child", {"c": ["end"]}, phase_keys={"c": required})
    write_skill(
        scenario.seed,
        "review",
        {"a": ["@child"], "@child": ["end"]},
        ops={"a": "file"},
        phase_keys={"a": before},
        skill_keys=after,
    )
    answers = [
        with_ops(go("@child", "first draft"), TWICE),
        act(TWICE),
        with_ops(go("@child", "second draft"), TWICE),
        finish("below"),  # the child
    ]
    return scenario.executes("review", answers)


def reviewing_at_once(folder: Path) -> Scenario:
    """The same with a user who decides immediately."""
    scenario = reviewing(folder)
    scenario.has_user = True
    return scenario


def rolled_back(folder: Path) -> Scenario:
    """A rollback of a phase that changed files, one of them twice and one in a new folder."""
    scenario = _with_files(folder)
    keys = "on_phase_failure: rollback\n"
    write_skill(scenario.seed, "back", {"a": ["b"], "b": ["end"]}, ops={"a": "file", "b": "file"}, skill_keys=keys)
    answers = [
        with_ops(go("b", "first"), TWICE),
        act(TWICE, TWICE, file("write", "output/new/er/n.txt", content="n"), file("delete", "output/old.txt")),
        "no",
        "no",
        go("b", "second"),
        act(TWICE),
        finish(),
    ]
    return scenario.executes("back", answers, max_phase_retries=1)


def sub_runs(folder: Path) -> Scenario:
    """Sub-runs by op and by node; one asks a question, one fails and returns the failure as its result."""
    scenario = _with_files(folder)
    write_skill(scenario.seed, "child", {"c": ["end"]}, ops={"c": "file, ask_user"})
    write_skill(scenario.seed, "parent", {"p": ["@child"], "@child": ["q"], "q": ["end"]}, ops={"p": "run_skill, file"})
    call = {"kind": "run_skill", "skill": "child", "input": {"text": "below"}}
    mine = file("write", "workspace:mine.txt", content="mine\n")
    answers = [
        act(mine, call, call),
        act(mine, TWICE, question("sure?")),  # the first child
        finish("one"),
        act(TWICE),  # the second child, which fails
        "no",
        "no",
        go("@child"),
        act(mine, TWICE),  # the node
        finish("three"),
        finish(),
    ]
    return scenario.executes("parent", answers, max_phase_retries=1)


def fanned_out(folder: Path) -> Scenario:
    """Branches that execute at the same time and change files: two phases, of which one fails, and a skill."""
    scenario = _with_files(folder)
    write_skill(scenario.seed, "child", {"c": ["end"]}, ops={"c": "file"})
    bad = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    branches = "{one: {do: write, output: note}, two: '@child', three: {do: write, output: bad}}"
    skill = write_skill(
        scenario.seed,
        "fan",
        {"split": ["last"], "last": ["end"]},
        inputs={"last": "both"},
        ops={"last": "file"},
        artifacts={"bad": bad},
        skill_keys=f"nodes: {{split: {{all: {branches}, on_item_error: collect, as: both}}}}\n",
    )
    phase = "---\ntype: phase\nname: write\ninput: note\nallowed_ops: [file]\n---\nWrite.\n"
    (skill / "phases/write.md").write_text(phase)
    scenario.is_concurrent = True
    # Branches that execute together count the answers of their parent alike, so each gets the first answers.
    together = [act(file("write", "workspace:mine.txt", content="x\n")), finish("each"), "no"]
    answers = [*together, "unused", "unused", "unused", "unused", with_ops(finish("all"), TWICE)]
    return scenario.executes("fan", answers, max_phase_retries=1)


def fanned_out_again(folder: Path) -> Scenario:
    """A branch for each item of a list, one after the other; each runs twice, and a rule reads the join."""
    scenario = _with_files(folder)
    scenario.input = {"items": [{"text": "a"}, {"text": "b"}]}
    items = {"type": "object", "properties": {"items": {"type": "array", "items": {"type": "object"}}}}
    each = "{in: data.items, do: write, output: note, max_parallel: 1}"
    skill = write_skill(
        scenario.seed,
        "fan",
        {
            "split": ["enough"],
            "enough": [{"when": "size(data.items) == 2", "to": "last"}, {"else": "end"}],
            "last": ["end"],
        },
        inputs={"split": "plan", "enough": "both", "last": "both"},
        ops={"last": "file"},
        artifacts={"plan": items | {"required": ["items"]}},
        final_output="both",
        skill_keys=f"nodes: {{split: {{each: {each}, on_item_error: retry, as: both}}}}\n",
    )
    for node in ("enough", "split"):
        text = (skill / f"phases/{node}.md").read_text()
        head = text.replace("allowed_ops: []\n", "").rpartition("---")[0]
        (skill / f"phases/{node}.md").write_text(f"{head}---\n")
    phase = "---\ntype: phase\nname: write\ninput: note\nallowed_ops: [file]\n---\nWrite.\n"
    (skill / "phases/write.md").write_text(phase)
    scenario.is_concurrent = True
    last = finish(type="both")
    last["artifact"]["data"] = {"items": []}
    # A branch counts the answers of its parent when it is planned: both get the first answers, which no phase accepts.
    answers = ["no", "no", with_ops(finish("one"), TWICE), "unused", finish("two"), "unused", with_ops(last, TWICE)]
    return scenario.executes("fan", answers, max_phase_retries=1)


def racing(folder: Path) -> Scenario:
    """Joins that need two of three branches, then any of two; the others never end by themselves and are cancelled."""
    scenario = _with_files(folder)
    scenario.stuck, scenario.is_concurrent = "wait", True
    write_skill(scenario.seed, "child", {"c": ["end"]}, ops={"c": "file"})
    late, write = "late: {do: wait, output: note}", "{do: write, output: note}"
    nodes = (
        f"nodes:\n  split: {{all: {{one: '@child', {late}, two: {write}}}, need: 2, as: both}}\n"
        f"  again: {{all: {{{late}, first: {write}}}, need: any, as: won}}\n"
    )
    skill = write_skill(
        scenario.seed,
        "race",
        {"split": ["again"], "again": ["last"], "last": ["end"]},
        inputs={"again": "both", "last": "won"},
        ops={"last": "file"},
        skill_keys=nodes,
    )
    for node, given in (("split", "note"), ("again", "both")):
        (skill / f"phases/{node}.md").write_text(f"---\ntype: phase\nname: {node}\ninput: {given}\n---\n")
    for phase in ("write", "wait"):
        text = f"---\ntype: phase\nname: {phase}\ninput: note | both\nallowed_ops: [file]\n---\nWrite.\n"
        (skill / f"phases/{phase}.md").write_text(text)
    # Branches that execute together count the answers of their parent alike, so each gets the same answers.
    together = [act(file("write", "workspace:mine.txt", content="x\n")), finish("each")]
    answers = [*together, "unused", "unused", with_ops(finish("won"), TWICE), with_ops(finish("all"), TWICE)]
    return scenario.executes("race", answers)


def stopping_sub_runs(folder: Path) -> Scenario:
    """A step runs a skill that runs a skill, which asks a question, reaches a limit and has a failing model."""
    scenario = _with_files(folder)
    scenario.has_user = True
    scenario.fails_at = "2.1"
    write_skill(scenario.seed, "leaf", {"l": ["k", "end"], "k": ["l"]}, ops={"l": "file, ask_user"})
    write_skill(scenario.seed, "middle", {"@leaf": ["m"], "m": ["end"]}, ops={"m": "file"})
    step = "preprocessor:\n  - run_skill: {skill: middle, input: {text: below}, into: data.sub}\n"
    write_skill(scenario.seed, "top", {"t": ["end"]}, phase_keys={"t": step})
    answers = [
        act(TWICE, question("sure?")),  # the leaf
        go("k", "once more"),
        go("l", "and once more"),
        with_ops(finish("leaf"), TWICE),
        with_ops(finish("middle"), file("write", "workspace:mine.txt", content="mine\n")),
        finish(),
    ]
    return scenario.executes("top", answers, max_phase_visits=1)


def steps_and_limits(folder: Path) -> Scenario:
    """Steps that change files before and after the model, a truncated result, and a raised act limit."""
    scenario = _with_files(folder)
    (scenario.seed / "long.txt").write_text("long\n" * 200)
    step = (
        "run_op: {op: {kind: file, op: edit, path: output/log.txt, old_string: x, new_string: xx, replace_all: true}}"
    )
    before = f"preprocessor:\n  - {step}\n"
    after = f"postprocessor:\n  output_schema: note\n  steps:\n    - {step}\n"
    write_skill(scenario.seed, "step", {"a": ["end"]}, ops={"a": "file"}, phase_keys={"a": before}, skill_keys=after)
    answers = [act(file("read", "long.txt")), act(file("read", "workspace:.full/1.1.1"), TWICE), finish()]
    return scenario.executes("step", answers, max_act_turns=1, limits={"on_limit": "stop"}, sizes={"result_bytes": 400})


FILE = standard_ops().get("file")


class SendOp:
    """Writes a file; unsafe to repeat."""

    _FORM = OpForm(
        None,
        "Send a text.",
        arguments("send", None, {"path": path(), "content": text(1_000)}),
        "unsafe",
        result("send", None, {"path": {"type": "string"}}),
        {"kind": "send", "path": "sent.txt", "content": "hello"},
    )
    spec = OpSpec("send", "Send a text.", "unsafe", forms=(_FORM,))

    def plan(self, call: Call, env: Env) -> Plan:
        write = Call(call.key, call.args | {"kind": "file", "op": "write"})
        plan = plan_op(FILE, write, env)
        return replace(plan, result=call.ok(path=call.args["path"]))

    async def perform(self, call: Call, plan: Plan, env: Env) -> dict:
        raise AssertionError("its plan changes files")


def conversing(folder: Path) -> Scenario:
    """A conversation with memory, a file and a compaction; an operator answers through the inbox."""
    scenario = _with_files(folder)
    write_skill(
        scenario.seed,
        "talk",
        {"chat": ["chat", "end"]},
        inputs={"chat": "user_message"},
        phase_keys={"chat": "conversation: {max_tokens: 200}\n"},
        ops={"chat": "file, remember, forget"},
    )
    remember, forget = {"kind": "remember", "text": "a name"}, {"kind": "forget", "id": "exp_1"}
    answers = [
        go("chat", "hello"),
        act(remember, TWICE, forget),
        go("chat", "x" * 500),
        "no summary",
        {"summary": "greetings"},
        finish(),
    ]
    return scenario.executes("talk", answers)


def handing_over(folder: Path) -> Scenario:
    """Two phases that share a transcript, a memory and a compaction hand over to each other, and one asks the user."""
    scenario = _with_files(folder)
    keys = "conversation: {transcript: customer, max_tokens: 200}\n"
    write_skill(
        scenario.seed,
        "desk",
        {"front": ["back"], "back": ["back", "front", "end"]},
        inputs={"front": "user_message", "back": "user_message | note"},
        phase_keys={"front": keys, "back": keys},
        ops={"front": "file, remember", "back": "file, forget"},
    )
    answers = [
        act({"kind": "remember", "text": "a name"}, TWICE),
        go("back", "over"),
        act({"kind": "forget", "id": "exp_1"}),
        go("back", "hello"),
        go("front", "x" * 900, type="user_message"),
        {"summary": "greetings"},
        with_ops(go("back", "y"), TWICE),
        finish(),
    ]
    return scenario.executes("desk", answers)


def refused_background_skill(folder: Path) -> Scenario:
    """A conversation that no chat executes: it cannot start a skill in the background, and goes on."""
    scenario = _with_files(folder)
    talk = {"inputs": {"chat": "user_message"}, "phase_keys": {"chat": "conversation: true\n"}}
    write_skill(scenario.seed, "talk", {"chat": ["chat", "end"]}, ops={"chat": "file, start_skill"}, **talk)
    write_skill(scenario.seed, "report", {"a": ["end"]})
    start = {"kind": "start_skill", "skill": "report", "input": {"text": "x"}}
    return scenario.executes("talk", [act(TWICE, start), go("chat", "It cannot be started."), finish()])


def unsafe(folder: Path) -> Scenario:
    """An unsafe op between two edits."""
    scenario = _with_files(folder)
    scenario.ops = [SendOp()]
    write_skill(scenario.seed, "risk", {"a": ["end"]}, ops={"a": "file, send"})
    send = {"kind": "send", "path": SENT, "content": "sent\n"}
    answers = [act(TWICE, send), act(TWICE), finish()]
    return scenario.executes("risk", answers)


def unsafe_in_a_sub_run(folder: Path) -> Scenario:
    """The same in a sub-run."""
    scenario = unsafe(folder)
    write_skill(scenario.seed, "above", {"p": ["end"]}, ops={"p": "run_skill"})
    call = {"kind": "run_skill", "skill": "risk", "input": {"text": "below"}}
    return scenario.executes("above", [act(call), *scenario.answers, finish()])


class CallOp:
    """Asks a person, then calls them: unsafe to repeat. `calls` counts the calls, across all processes."""

    _FORM = OpForm(
        None,
        "Call someone.",
        arguments("call", None, {"who": text(100)}),
        "unsafe",
        result("call", None, {"answer": {"type": "string"}}),
        {"kind": "call", "who": "ada"},
    )
    spec = OpSpec("call", "Call someone.", "unsafe", forms=(_FORM,))

    def __init__(self, calls: Path) -> None:
        self.calls = calls

    def plan(self, call: Call, env: Env) -> Plan:
        return Plan("default: call", request=AskRequest("May I call?", {"type": "string"}))

    async def perform(self, call: Call, plan: Plan, env: Env) -> dict:
        with self.calls.open("a") as file:
            file.write("called\n")
        return call.ok(answer=plan.answer)


def unsafe_after_a_question(folder: Path) -> Scenario:
    """An unsafe op that asks a person first."""
    scenario = _with_files(folder)
    scenario.ops = [CallOp(folder / "calls")]
    write_skill(scenario.seed, "risk", {"a": ["end"]}, ops={"a": "file, call"})
    return scenario.executes("risk", [act(TWICE, {"kind": "call", "who": "ada"}), act(TWICE), finish()])


def within_a_prompt_budget(folder: Path) -> Scenario:
    """Prompts and handoffs that an exact counter truncates."""
    scenario = Scenario(folder)
    keys = {"b": "context: {narrative_cap: 500}\n"}
    write_skill(scenario.seed, "long", {"a": ["b"], "b": ["end"]}, ops={"a": "file"}, phase_keys=keys)
    (scenario.seed / "long.txt").write_text("a long line\n" * 300)
    answers = [act(file("read", "long.txt")), go("b", "many words " * 300), finish()]
    return scenario.executes("long", answers, context={"max_prompt_tokens": 700, "counter": "exact"})


def executing(folder: Path) -> Scenario:
    """A python step, and a program that only reads."""
    scenario = _with_files(folder)
    skill = write_skill(
        scenario.seed,
        "code",
        {"a": ["end"]},
        ops={"a": "sandboxed_exec"},
        phase_keys={
            "a": "preprocessor:\n  - python: {module: ./m.py, function: f, into: data.text}\n",
        },
        skill_keys="permissions: {exec: [cat], python: [{module: ./m.py, function: f}]}\n",
    )
    (skill / "m.py").write_text("def f(artifact):\n    return artifact['data']['text'] + '!'\n")
    program = {"kind": "sandboxed_exec", "argv": ["cat", LOG], "read_paths": [LOG]}
    answers = [act(program), finish()]
    return scenario.executes("code", answers, permissions={"exec": [{"allow": "cat"}]}, trust=True)


def writing_program(folder: Path) -> Scenario:
    """A program that adds a line to a file of the workspace: unsafe to repeat."""
    scenario = _with_files(folder)
    keys = "permissions: {exec: [sh]}\n"
    write_skill(scenario.seed, "program", {"a": ["end"]}, ops={"a": "sandboxed_exec"}, skill_keys=keys)
    program = {
        "kind": "sandboxed_exec",
        "argv": ["sh", "-c", "echo line >> lines.txt"],
        "write_paths": ["workspace:"],
    }
    return scenario.executes("program", [act(program), finish()], permissions={"exec": [{"allow": "sh"}]}, trust=True)


def iterating_together(folder: Path) -> Scenario:
    """An iteration whose sub-runs execute at the same time and change files."""
    scenario = _with_files(folder)
    write_skill(scenario.seed, "item", {"x": ["end"]}, ops={"x": "file"})
    step = (
        "preprocessor:\n  - iterate: {over: data.items, concurrency: 2, into: data.all,"
        " apply: {run_skill: {skill: item, input: {text: _iter.item}}}}\n"
    )
    anything = {"type": "object", "additionalProperties": True}
    write_skill(scenario.seed, "many", {"a": ["end"]}, phase_keys={"a": step}, artifacts={"note": anything})
    scenario.input = {"text": "in", "items": ["one", "two", "three"]}
    scenario.is_concurrent = True
    # Sub-runs that execute together count the answers of their parent alike, so each gets the first answers.
    together = [act(file("write", "workspace:mine.txt", content="x\n")), finish("each")]
    return scenario.executes("many", [*together, "unused", "unused", "unused", "unused", finish("all")])


async def yielding(times: int) -> int:
    """Let other tasks go first, so often."""
    for _ in range(times):
        await asyncio.sleep(0)
    return times


LOOK = tool(name="look", description="Look.", effect="pure", permission=None)(yielding)
MARK = tool(name="mark", description="Mark.", effect="idempotent", concurrent=True, permission=None)(yielding)


def native_calls(*calls: tuple[str, dict]) -> dict:
    return {"content": "Let me see.", "tool_calls": [{"name": name, "arguments": args} for name, args in calls]}


def tools_together(folder: Path) -> Scenario:
    """Native tools that are performed at the same time, before and after an edit; one call is invalid."""
    scenario = _with_files(folder)
    scenario.is_native, scenario.ops = True, [LOOK, MARK]
    write_skill(scenario.seed, "tools", {"a": ["end"]}, ops={"a": "look, mark, file"})
    edit = ("file_edit", {key: value for key, value in TWICE.items() if key not in ("kind", "op")})
    look = [("look", {"times": times}) for times in (9, 1, 5)]
    answers = [
        native_calls(*look, edit, ("look", {"times": "often"}), ("mark", {"times": 3}), *look),
        native_calls(edit, *look),
        "done",
    ]
    return scenario.executes("tools", answers)


def unsafe_together(folder: Path, *endless: str) -> tuple[Scenario, Path]:
    """Three unsafe tools that are performed at the same time; each writes a line to a file, which is returned."""
    scenario, calls = Scenario(folder), folder / "calls"

    async def post(name: str) -> str:
        await asyncio.sleep(0)
        with calls.open("a") as file:
            file.write(f"{name}\n")
        await (asyncio.Event().wait() if name in endless else asyncio.sleep(0))
        return name

    scenario.is_native = scenario.is_concurrent = True
    scenario.ops = [tool(description="Post.", concurrent=True, permission=None)(post)]
    write_skill(scenario.seed, "posts", {"a": ["end"]}, ops={"a": "post"})
    answers = [native_calls(*(("post", {"name": name}) for name in ("one", "two", "three"))), "done"]
    return scenario.executes("posts", answers), calls


def within_budgets(folder: Path) -> Scenario:
    """A run with a sub-run and a rejected answer, under budgets that stop it and are raised through the inbox."""
    scenario = Scenario(folder)
    write_skill(scenario.seed, "child", {"c": ["c", "end"]})
    write_skill(scenario.seed, "spend", {"a": ["@child"], "@child": ["b"], "b": ["end"]})
    answers = [go("@child"), go("c"), "no JSON", finish("from the child"), finish()]
    budgets = {"run": {"tokens": 3000}, "skill": {"child": {"run": {"tokens": 2000}}}, "day": {"tokens": 1_000_000}}
    return scenario.executes("spend", answers, budgets=budgets)


PLAIN = (within_budgets, within_a_prompt_budget, pair, rejected_and_looping, concurrent_runs, stopping_and_continuing)
ACTING = (
    writing,
    working,
    concurrent_writers,
    asking_an_absent_user,
    asking_a_present_user,
    approving,
    approving_at_once,
    expiring,
    reviewing,
    reviewing_at_once,
    rolled_back,
    sub_runs,
    fanned_out,
    fanned_out_again,
    racing,
    with_state,
    with_node_errors,
    stopping_sub_runs,
    steps_and_limits,
    conversing,
    handing_over,
    refused_background_skill,
    iterating_together,
    tools_together,
)
