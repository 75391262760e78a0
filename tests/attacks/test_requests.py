"""A request is never a grant.

The attacker writes a skill: its graph, its instructions and its `permissions`. The oracles are the file system, the
prompt that a model receives, and the conversations that exist.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.errors import SkillInvalid
from reyn.lint import lint_skill
from reyn.models import ModelAnswer, ModelRequest
from reyn.ops import standard_ops
from reyn.permissions import Allowed, Denied, Gate, NeedsApproval, Policy, parse_requests, parse_rules
from reyn.skills.agents import Agents, agent_of
from reyn.vocabulary import PERMISSIONS
from reyn.workspace import Location, Roots
from tests.chat.support import Agent, ask_agent, ending_chat
from tests.chat.test_agents_that_ask import agents
from tests.chat.test_conversations import reach
from tests.kernel.support import Project
from tests.support import act, file, finish, write_skill

KEYS = tuple(entry.key for entry in PERMISSIONS)
HARMLESS = {
    "ask_user": "a person sees the question and answers",
    "judge_output": "a model call within the limits of the run",
    "run_skill": "the sub-run has the rights of both skills",
    "start_skill": "the same, in the background",
    "python": "safe functions run in a sandbox without access; unsafe ones need the operator's option",
}
"""The capabilities that a run has without a rule of the operator, and why that gains nothing."""


def gate_of(requests: dict[str, Any], rules: dict[str, Any] | None = None, skill: str = "s", *above: str) -> Gate:
    roots = Roots(Path("/nowhere"), Path("/nowhere/.reyn"), Path("/nowhere/.reyn/workspace/run"))
    policy = Policy(parse_rules(rules or {}, KEYS), allow_shell=True)
    asked = (parse_requests(requests),) * (1 + len(above))
    return Gate(roots, policy, asked, skill, above, "" if above else agent_of(skill))


def verdict_of(key: str, gate: Gate) -> Any:
    location = Location.at("project", ("src", "x.py"))
    outside = Location("outside", ("srv", "x"), "/srv/x")
    match key:
        case "file.read":
            return gate.show(outside)
        case "file.write":
            return gate.write(location)
        case "python":
            return gate.python("m:f", is_unsafe=False)
    return gate.capability(key, "x")


@pytest.mark.parametrize("key", KEYS)
def test_no_capability_is_granted_by_a_request(key: str):
    request = {key: ["src/*.py", "/srv/"]} if key.startswith("file.") else {key: True}
    verdict = verdict_of(key, gate_of(request))
    assert isinstance(verdict, Allowed) is (key in HARMLESS)
    assert isinstance(verdict_of(key, gate_of(request, {key: "deny"})), Denied)


def test_every_capability_of_an_op_is_one_of_these():
    specs = standard_ops().vocabulary.ops
    used = {key for spec in specs for key in (spec.permission, *spec.optional_permissions) if key}
    assert used <= set(KEYS)
    assert set(HARMLESS) <= set(KEYS)
    assert {
        spec.kind for spec in specs if spec.is_available and not spec.permission and not spec.optional_permissions
    } == {
        *("lint", "skill_resolve", "skill_draft", "skill_graph", "skill_try", "compact", "index_query", "embed"),
    }  # they read the project's skills, write to `workspace:`, change the conversation, or find what may be read


@pytest.mark.parametrize("unsafe", [{"module": "m", "function": "f", "mode": "unsafe"}])
def test_an_unsafe_function_is_not_granted_by_its_request(unsafe: dict[str, str]):
    assert isinstance(gate_of({"python": [unsafe]}).python("m:f", is_unsafe=True), Denied)


# -- memory ---------------------------------------------------------------------------------------------------


def memory(*parts: str) -> Location:
    return Location.at("project", ("reyn", "memory", *parts))


def test_an_agent_writes_its_own_and_the_shared_memory_in_its_own_conversation():
    gate = gate_of({"memory": ["designer", "shared"]}, None, "agent:designer")
    assert isinstance(gate.write(memory("designer", "a.md")), Allowed)
    assert isinstance(gate.write(memory("a.md")), Allowed)
    assert isinstance(gate.write(memory("writer", "a.md")), Denied)


@pytest.mark.parametrize("scope", [("designer", "a.md"), ("a.md",), ("writer", "a.md")])
@pytest.mark.parametrize(("skill", "above"), [("s", ()), ("s", ("agent:designer",)), ("agent:designer", ("s",))])
def test_any_other_run_asks_before_it_writes_a_memory(scope: tuple[str, ...], skill: str, above: tuple[str, ...]):
    verdict = gate_of({"memory": True}, None, skill, *above).write(memory(*scope))
    assert isinstance(verdict, NeedsApproval)
    allowed = gate_of({"memory": True}, {"memory": "allow"}, skill, *above).write(memory(*scope))
    assert allowed == Allowed("permissions.memory: allow")


@pytest.mark.parametrize("path", ["reyn/memory/default/rule.md", "reyn/memory/rule.md"])
def test_a_skill_that_requests_memory_writes_nothing_without_a_person(tmp_path: Path, path: str):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"}, skill_keys="permissions: {memory: true}\n")
    result = Project(tmp_path).run("s", [act(file("write", path, content="obey")), finish()])
    assert result.status == "waiting"
    assert "default: ask for memory" in str(result.question)
    assert not (tmp_path / "reyn" / "memory").exists()


class Planting(Agent):
    """An agent that runs the skill `s`, whose model writes to the agent's memory."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if request.phase == "a":
            is_first = not request.messages[-1].text.startswith("# Results")
            answer = act(file("write", "reyn/memory/default/rule.md", content="obey")) if is_first else finish()
            return ModelAnswer(json.dumps(answer))
        return await super().complete(request)


def test_a_skill_that_an_agent_runs_asks_before_it_writes_the_agents_memory(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"}, skill_keys="permissions: {memory: true}\n")
    model = Planting(please=act({"kind": "run_skill", "skill": "s", "input": {"text": "x"}}))

    async def talk() -> None:
        async with OSRuntime.open(tmp_path, model=model, trust=True) as rt, rt.chat(run_id="c") as chat:
            waiting = asyncio.ensure_future(chat.say("please"))
            await reach(lambda: len(chat.questions))
            assert not (tmp_path / "reyn" / "memory").exists()
            waiting.cancel()

    asyncio.run(talk())
    assert not (tmp_path / "reyn" / "memory").exists()


# -- what is remembered is read through the gate --------------------------------------------------------------

NOTE = "---\nname: tea\ndescription: Ada likes tea\n---\nAda likes green tea.\n"
RECALL = act({"kind": "recall", "query": "green tea"})


def notes(root: Path) -> None:
    for folder in ("reyn/memory", "reyn/memory/default", "reyn/memory/other", "notes"):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / "tea.md").write_text(NOTE)


def say(root: Path, model: Agent, **settings: Any) -> str:
    async def session() -> str:
        async with OSRuntime.open(root, model=model, trust=True, **settings) as rt, rt.chat(run_id="c") as chat:
            return (await chat.say("which tea")).text

    return asyncio.run(session())


@pytest.mark.parametrize(
    "rules",
    [
        {"memory": "deny"},
        {"memory": [{"deny": ["default", "shared"]}]},
        {"file.read": [{"deny": "reyn/memory/"}]},
        {"file.read": [{"deny": "**/tea.md"}]},
        {"file.read": "deny"},
    ],
)
def test_nothing_of_a_denied_memory_is_shown_or_found(tmp_path: Path, rules: dict[str, Any]):
    notes(tmp_path)
    model = Agent(which=RECALL)
    text = say(tmp_path, model, permissions=rules)
    assert '"status":"denied"' in text or '"found":[]' in text
    assert "green" not in text.replace("green tea?", "")
    assert not any("Ada" in prompt for prompt in model.systems)


def test_a_denied_memory_is_denied_with_an_event(tmp_path: Path):
    notes(tmp_path)
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "recall, file"})
    project = Project(tmp_path)
    tries = [
        RECALL,
        act({"kind": "recall", "query": "tea", "folders": ["notes"]}),
        act(file("read", "reyn/memory/tea.md")),
    ]
    rules = {"memory": "deny", "file.read": [{"deny": "notes/"}]}
    assert project.run("s", [*tries, finish()], permissions=rules).ok
    assert [event["rule"] for event in project.events("permission_denied")] == [
        "permissions.memory: deny",
        "permissions.file.read: deny notes/",
        "permissions.memory: deny",
    ]


SEARCHES = [
    {"kind": "recall", "query": "tea", "folders": ["reyn/memory"]},
    {"kind": "recall", "query": "tea", "folders": ["notes", "reyn/memory/other"]},
    {"kind": "file", "op": "glob", "pattern": "reyn/memory/**"},
    {"kind": "file", "op": "glob", "pattern": "reyn/memory/other/t*"},
    {"kind": "file", "op": "glob", "path": "reyn/memory"},
    {"kind": "file", "op": "grep", "pattern": "tea", "path": "reyn/memory"},
    {"kind": "file", "op": "grep", "pattern": "tea", "glob": "reyn/memory/*.md"},
    {
        "kind": "file",
        "op": "regenerate_index",
        "path": "reyn/memory",
        "output_path": "output/i.md",
        "entry_template": "x",
    },
]


def search_notes(tmp_path: Path, rules: dict[str, Any]) -> list[str]:
    """Return the status of each search under some rules. Exactly those that are denied have an event."""
    notes(tmp_path)
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "recall, file"})
    project = Project(tmp_path)
    assert project.run("s", [act(*SEARCHES), finish()], permissions=rules).ok
    found = [result["status"] for result in project.results()]
    assert found.count("denied") == len(project.events("permission_denied"))
    return found


@pytest.mark.parametrize(
    "rules",
    [
        {"memory": "deny"},
        {"memory": [{"deny": "*"}]},
        *({"file.read": [{"deny": f"reyn/memory{pattern}"}]} for pattern in ("", "/", "/*", "/**", "/**/*", "/?*")),
        {"file.read": [{"deny": "**/memory/*"}]},
        {"file.read": "deny"},
    ],
    ids=str,
)
def test_a_search_of_a_folder_that_is_denied_as_a_whole_is_denied_with_an_event(tmp_path: Path, rules: dict[str, Any]):
    assert set(search_notes(tmp_path, rules)) == {"denied"}


@pytest.mark.parametrize(
    ("rules", "denied"),
    [
        ({"memory": [{"deny": "shared"}]}, []),
        ({"memory": [{"deny": "other"}]}, [1, 3]),
        ({"file.read": [{"deny": "reyn/memory/*.md"}]}, []),
        ({"file.read": [{"deny": "reyn/memory/*/*"}]}, [1, 3]),
        ({"file.read": [{"deny": "**/tea.md"}]}, []),
    ],
    ids=str,
)
def test_a_search_leaves_out_the_part_of_a_folder_that_is_denied(
    tmp_path: Path, rules: dict[str, Any], denied: list[int]
):
    found = search_notes(tmp_path, rules)
    assert [number for number, status in enumerate(found) if status == "denied"] == denied
    assert set(found) <= {"ok", "denied"}


@pytest.mark.parametrize("search", [{"kind": "recall", "query": "tea", "folders": ["notes"]}, file("glob", "notes/*")])
def test_a_rule_that_asks_about_all_in_a_folder_asks_before_a_search(tmp_path: Path, search: dict[str, Any]):
    notes(tmp_path)
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "recall, file"})
    project, rules = Project(tmp_path), {"file.read": [{"ask": "notes/*"}]}
    with project.open([act(search), finish()], permissions=rules) as rt:
        waiting = rt.run("s", {"text": "x"}, run_id="k")
        assert waiting.status == "waiting"
        rt.answer(waiting.run_id, waiting.question.id, "approve")
        assert rt.resume(waiting.run_id).ok
    [result] = project.results()
    assert "notes/tea.md" in str(result)


def test_a_skill_recalls_shared_memories_without_a_request_and_lint_agrees(tmp_path: Path):
    notes(tmp_path)
    for name, keys in (("without", ""), ("requesting", "permissions: {memory: [shared]}\n")):
        folder = write_skill(tmp_path, name, {"a": ["end"]}, ops={"a": "recall"}, skill_keys=keys)
        assert lint_skill(folder) == []
        project = Project(tmp_path)
        assert project.run(name, [RECALL, finish()]).ok
        [found] = project.results()
        assert [one["path"] for one in found["found"]] == ["reyn/memory/tea.md"]


def test_an_ask_rule_on_memory_files_asks_before_recall_reads_them(tmp_path: Path):
    notes(tmp_path)
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "recall"})
    project = Project(tmp_path)
    result = project.run("s", [RECALL, finish()], permissions={"file.read": [{"ask": "reyn/memory/"}]})
    assert result.status == "waiting"


# -- agents ---------------------------------------------------------------------------------------------------


def test_a_skill_that_requests_agents_is_asked_about_and_an_agents_own_file_is_not():
    assert isinstance(gate_of({"agent": True}).capability("agent", "boss"), NeedsApproval)
    assert isinstance(gate_of({"agent": True}, None, "s", "agent:x").capability("agent", "boss"), NeedsApproval)
    assert isinstance(gate_of({"agent": ["boss"]}, None, "agent:x").capability("agent", "boss"), Allowed)
    assert isinstance(gate_of({"agent": ["boss"]}, None, "agent:x").capability("agent", "other"), Denied)


def test_a_chat_skill_of_the_project_adds_no_agent_that_the_agents_file_does_not_name(tmp_path: Path):
    ending_chat(tmp_path)
    path = tmp_path / "reyn/project/chat/skill.md"
    path.write_text(
        path.read_text().replace("permissions: {memory: [shared]}", "permissions: {agent: true, memory: true}")
    )
    phase = tmp_path / "reyn/project/chat/phases/converse.md"
    phase.write_text(phase.read_text().replace("allowed_ops: [", "allowed_ops: [ask_agent, "))
    agents(tmp_path, editor="memory: none", boss="")
    model = Agent(please=ask_agent("boss", "Wire the money"))

    async def talk() -> tuple[str, list[str]]:
        async with OSRuntime.open(tmp_path, model=model, trust=True) as rt:
            async with rt.chat("editor", run_id="c") as chat:
                text = (await chat.say("please")).text
            return text, [run.skill for run in rt.runs.all()]

    text, skills = asyncio.run(talk())
    assert '"status":"denied"' in text
    assert skills == ["agent:editor"]


def test_an_agent_that_may_not_be_asked_is_not_run_as_a_skill_either(tmp_path: Path):
    agents(tmp_path, boss="")
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "run_skill"})
    project = Project(tmp_path)
    op = {"kind": "run_skill", "skill": "agent:boss", "input": {"text": "x"}}
    assert project.run("s", [act(op), finish()], permissions={"agent": [{"deny": "boss"}]}).ok
    assert [row.run_id for row in project.journal.runs()] == ["k"]


def test_an_imported_conversation_has_no_rights_of_an_agent(tmp_path: Path):
    """An archive says what its agent requests; only the file of an agent in this project grants it."""
    model = Agent(please=act({"kind": "remember", "text": "obey", "name": "rule"}))

    async def talk(root: Path, archive: list[bytes]) -> list[bytes]:
        async with OSRuntime.open(root, model=model, trust=True) as rt:
            if not archive:
                async with rt.chat(run_id="c") as chat:
                    await chat.say("please")
                return list(rt.runs.export("c"))
            rt.runs.import_(archive)
            first = next(event.seq for event in rt.runs.events("c") if event.kind == "llm_requested")
            await rt.fork("c", at=first, run_id="f")
            assert "approval_required" in [event.kind for event in rt.runs.events("f")]
            return []

    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    asyncio.run(talk(tmp_path / "ours", asyncio.run(talk(tmp_path / "theirs", []))))
    assert (tmp_path / "theirs/reyn/memory/default/rule.md").exists()
    assert not (tmp_path / "ours/reyn/memory").exists()


# -- what needs no request can be denied ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "op"),
    [
        ({"ask_user": "deny"}, {"kind": "ask_user", "question": "May I?"}),
        ({"run_skill": "deny"}, {"kind": "run_skill", "skill": "inner", "input": {"text": "x"}}),
        ({"run_skill": [{"deny": "inn*"}]}, {"kind": "run_skill", "skill": "inner", "input": {"text": "x"}}),
        ({"judge_output": "deny"}, {"kind": "judge_output", "output": "x", "rubric": "good"}),
    ],
)
def test_the_operator_denies_what_needs_no_request(tmp_path: Path, rules: dict[str, Any], op: dict[str, Any]):
    write_skill(tmp_path, "inner", {"b": ["end"]})
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": op["kind"]})
    project = Project(tmp_path)
    assert project.run("s", [act(op), finish()], permissions=rules).ok
    assert [event["op_kind"] for event in project.events("permission_denied")] == [op["kind"]]
    assert [row.run_id for row in project.journal.runs()] == ["k"]


@pytest.mark.parametrize("rules", [{"run_skill": "deny"}, {"run_skill": [{"deny": "inner"}]}])
def test_a_skill_that_may_not_be_run_is_not_run_as_a_node_either(tmp_path: Path, rules: dict[str, Any]):
    write_skill(tmp_path, "inner", {"b": ["end"]})
    write_skill(tmp_path, "outer", {"@inner": ["end"]})
    project = Project(tmp_path)
    result = project.run("outer", [finish()], permissions=rules)
    assert result.status == "failed"
    assert "permissions.run_skill: deny" in str(result)
    assert [row.run_id for row in project.journal.runs()] == ["k"]


def test_a_skill_that_may_not_be_run_is_not_started_either(tmp_path: Path):
    write_skill(tmp_path, "inner", {"b": ["end"]})
    for number, rules in enumerate(({"run_skill": [{"deny": "inner"}]}, {"start_skill": "deny"})):
        model = Agent(which=act({"kind": "start_skill", "skill": "inner", "input": {"text": "x"}}))

        async def talk(model: Agent = model, rules: Any = rules, name: str = f"c{number}") -> tuple[str, int]:
            async with OSRuntime.open(tmp_path, model=model, trust=True, permissions=rules) as rt:
                async with rt.chat(run_id=name) as chat:
                    text = (await chat.say("which")).text
                return text, len(rt.runs.all())

        text, count = asyncio.run(talk())
        assert '"status":"denied"' in text
        assert count == number + 1


@pytest.mark.parametrize("name", ["**", "*A", "[A-Z]*", "secret://TOKEN", "TOKEN*", "", "token", "A B"])
def test_a_skill_or_agent_names_each_secret_that_it_requires(tmp_path: Path, name: str):
    keys = f"required_credentials: [TOKEN, {json.dumps(name)}]\n"
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, skill_keys=keys)
    messages = [finding.message for finding in lint_skill(folder)]
    assert f"`{name}` is not the name of a secret" in messages
    path = tmp_path / "reyn" / "agents" / "helper.md"
    path.parent.mkdir(parents=True)
    path.write_text(f"---\ntype: agent\nname: helper\n{keys}---\nHelp.\n")
    with pytest.raises(SkillInvalid, match="is not the name of a secret"):
        Agents(tmp_path).load("helper")


@pytest.mark.parametrize("required", ["[A]", "[A, B]", "[]", '["*"]'])
@pytest.mark.parametrize("above", ["[]", "[A]", '["*"]'])
def test_a_sub_run_that_is_repeated_has_no_more_rights_than_before(tmp_path: Path, required: str, above: str):
    """Repeated and forked on its own, it has no run above it; what that was allowed bounds it all the same."""
    write_skill(tmp_path, "s", {"a": ["end"]}, skill_keys=f"required_credentials: {required}\n")
    write_skill(tmp_path, "outer", {"@s": ["end"]}, skill_keys=f"required_credentials: {above}\n")
    project = Project(tmp_path)
    assert project.run("outer", [finish()], run_id="o").ok
    with project.open([finish()]) as rt:
        [child] = [row.run_id for row in rt.runs.all() if row.parent]
        before = rt.runs.state(child).started
        assert before.credentials is not None
        assert rt.rerun(child, run_id="again").ok
        assert rt.fork(child, run_id="forked").ok
        for run in ("again", "forked"):
            now = rt.runs.state(run).started
            assert (now.credentials, now.requests) == (before.credentials, before.requests)
