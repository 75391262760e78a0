"""Tools of MCP servers as ops: accepted definitions, permissions, and servers that misbehave."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from reyn.errors import McpServerFailed, McpServerUnknown
from reyn.ops.mcp import ToolDefinitions
from reyn.runtime import SyncRuntime
from reyn.testing import ScriptedModel
from tests.support import act, finish, write_skill

pytestmark = pytest.mark.sockets
SERVER = Path(__file__).parent / "server.py"


class Tools:
    """A project with the server `desk`, and the result of one call."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls = root / "calls"
        self.settings: dict[str, Any] = {"permissions": {"mcp": "allow"}}
        self.server: dict[str, Any] = {}
        self.skill_keys = "permissions: {mcp: [desk]}\n"
        self.allowed = "'mcp:desk/*'"

    def configured(self, behavior: str) -> dict[str, Any]:
        command = [sys.executable, str(SERVER), str(self.calls), behavior]
        return self.settings | {"mcp": {"servers": {"desk": {"command": command} | self.server}}}

    def accept(self, behavior: str = "") -> ToolDefinitions:
        with SyncRuntime.open(self.root, **self.configured(behavior)) as runtime:
            found = runtime.project.mcp_tools("desk")
            runtime.project.accept_mcp_tools(found)
            return found

    def run(self, behavior: str, *ops: dict[str, Any]) -> Any:
        """Run ops, and return their results; the run itself if there are none."""
        write_skill(self.root, "caller", {"a": ["end"]}, ops={"a": self.allowed}, skill_keys=self.skill_keys)
        model = ScriptedModel([act(*ops), finish()])
        with SyncRuntime.open(self.root, model=model, **self.configured(behavior)) as runtime:
            run = runtime.run("caller", {"text": "x"})
            self.events = list(runtime.runs.events(run.run_id))
            results = [
                json.loads(runtime.services.journal.blob(event.data["result"]))
                for event in self.events
                if event.data.get("result") and event.kind != "step_completed"
            ]
        with SyncRuntime.open(self.root, model=model) as runtime:
            assert runtime.runs.replay(run.run_id).events == len(self.events), "a replay needs no server"
        return results or run

    def do(self, behavior: str) -> Any:
        self.accept()
        return self.run(behavior, {"kind": "mcp:desk/do"})[0]


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(tmp_path)


def test_an_accepted_tool_is_an_op(tools: Tools):
    assert [tool.name for tool in tools.accept().tools] == ["echo", "do", "look", "put"]
    [found] = tools.run("", {"kind": "mcp:desk/echo", "args": {"text": "hello"}})
    assert found == {"kind": "mcp:desk/echo", "status": "ok", "content": "hello"}
    assert {"mcp:desk/echo_started", "mcp:desk/echo_completed"} <= {event.kind for event in tools.events}


def test_arguments_are_checked_against_the_schema_of_the_tool(tools: Tools):
    tools.accept()
    tools.run("", {"kind": "mcp:desk/echo", "args": {"text": 7}})
    [error] = [event.data for event in tools.events if event.kind == "validation_error"]
    assert error["path"] == "$.control_ir[0].args.text"
    assert not tools.calls.exists()


def test_two_calls_use_one_server(tools: Tools):
    tools.accept()
    first, second = tools.run("pid", {"kind": "mcp:desk/do"}, {"kind": "mcp:desk/do", "args": {"again": 1}})
    assert first["content"] == second["content"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(first["content"]), 0)  # it ended with the runtime


def test_a_tool_without_an_accepted_definition_does_not_exist(tools: Tools):
    from reyn.errors import SkillInvalid

    tools.allowed = "'mcp:desk/do'"
    with pytest.raises(SkillInvalid, match=r"unknown op `mcp:desk/do`(.|\n)*accept the tools of the MCP server `desk`"):
        tools.run("", {"kind": "mcp:desk/do"})


def test_a_changed_definition_is_not_called_until_it_is_accepted(tools: Tools):
    found = tools.do("changed")
    assert (found["status"], found["rule"]) == ("denied", "default: accepted definitions only")
    assert not tools.calls.exists()
    tools.accept("changed")
    assert tools.run("changed", {"kind": "mcp:desk/do"})[0]["content"] == "done"


def test_a_definition_is_compared_with_the_accepted_one(tools: Tools):
    before, after = tools.accept(), tools.accept("changed")
    assert after.changes(before) == ["~ do"]
    assert after.changes(None) == ["+ echo", "+ do", "+ look", "+ put"]
    assert ToolDefinitions("desk", ()).changes(after) == ["- echo", "- do", "- look", "- put"]


# -- permissions ----------------------------------------------------------------------------------------------


def test_a_tool_asks_a_person_unless_a_rule_allows_it(tools: Tools):
    tools.settings = {}
    tools.accept()
    run = tools.run("", {"kind": "mcp:desk/do"})
    assert run.status == "waiting"
    assert not tools.calls.exists()


@pytest.mark.parametrize(
    ("rules", "status"),
    [
        ([{"allow": "desk"}], "ok"),
        ([{"allow": "desk/do"}], "ok"),
        ([{"allow": "desk"}, {"deny": "desk/do"}], "denied"),
        ([{"deny": "*"}], "denied"),
    ],
)
def test_rules_name_servers_and_tools(tools: Tools, rules: list, status: str):
    tools.settings = {"permissions": {"mcp": rules}}
    assert tools.do("")["status"] == status


def test_a_skill_gets_only_the_servers_that_it_requests(tools: Tools):
    tools.skill_keys = "permissions: {mcp: [other]}\n"
    assert tools.do("")["rule"] == "default: no request"


@pytest.mark.parametrize(("trusted", "effect"), [(False, "unsafe"), (True, "idempotent")])
def test_hints_of_a_server_count_only_if_the_operator_trusts_it(tools: Tools, trusted: bool, effect: str):
    tools.server = {"trusted": trusted}
    tools.accept()
    with SyncRuntime.open(tools.root, **tools.configured("")) as runtime:
        assert runtime.services.ops.get("mcp:desk/echo").spec.effect == effect
        assert runtime.services.ops.get("mcp:desk/do").spec.effect == "unsafe"


def test_a_project_that_is_not_trusted_starts_no_server(tools: Tools):
    tools.accept()
    (tools.root / "reyn.yaml").write_text(json.dumps({"mcp": tools.configured("")["mcp"]}))
    with SyncRuntime.open(tools.root) as runtime:
        [grant] = runtime.project.trust.ignored
        assert (grant.kind, grant.key) == ("code", "mcp.servers.desk")
        assert str(SERVER) in grant.text
        assert runtime.services.ops.get("mcp:desk/do") is None
        with pytest.raises(McpServerUnknown, match="may need trust"):
            runtime.project.mcp_tools("desk")
    with SyncRuntime.open(tools.root, trust=True) as runtime:
        assert runtime.services.ops.get("mcp:desk/do") is not None


def test_a_server_gets_no_environment_and_only_required_secrets(tools: Tools, monkeypatch):
    monkeypatch.setenv("PRIVATE_VARIABLE", "hidden")
    monkeypatch.setenv("REYN_SECRET_DESK_KEY", "sk-desk-0123456789abcdef")
    tools.server = {"env": {"MODE": "plain"}}
    content = json.loads(tools.do("environment")["content"])
    assert content["MODE"] == "plain"
    assert "PRIVATE_VARIABLE" not in content
    assert "REYN_SECRET_DESK_KEY" not in content
    tools.server = {"env": {"KEY": "secret://DESK_KEY"}}
    refused = tools.run("", {"kind": "mcp:desk/do"})[0]
    assert "does not require the credential `DESK_KEY`" in refused["error"]
    tools.skill_keys += "required_credentials: [DESK_KEY]\n"
    assert tools.run("", {"kind": "mcp:desk/do"})[0]["status"] == "ok"


@pytest.mark.parametrize(("required", "status"), [("[]", "error"), ("[OTHER]", "error"), ("[DESK_KEY]", "ok")])
def test_a_sub_run_passes_a_server_what_all_skills_require(tools: Tools, monkeypatch, required: str, status: str):
    monkeypatch.setenv("REYN_SECRET_DESK_KEY", "sk-desk-0123456789abcdef")
    tools.server = {"env": {"KEY": "secret://DESK_KEY"}}
    tools.skill_keys += "required_credentials: [DESK_KEY]\n"
    tools.accept()
    keys = f"permissions: {{mcp: [desk]}}\nrequired_credentials: {required}\n"
    write_skill(tools.root, "caller", {"a": ["end"]}, ops={"a": tools.allowed}, skill_keys=tools.skill_keys)
    write_skill(tools.root, "outer", {"@caller": ["end"]}, skill_keys=keys)
    model = ScriptedModel([act({"kind": "mcp:desk/do"}), finish()])
    with SyncRuntime.open(tools.root, model=model, **tools.configured("")) as runtime:
        assert runtime.run("outer", {"text": "x"}, run_id="k").ok
        [child] = [row.run_id for row in runtime.runs.all() if row.run_id != "k"]
        [event] = [event for event in runtime.runs.events(child) if event.kind == "mcp:desk/do_completed"]
    assert event.data["status"] == status


def test_a_result_that_holds_a_secret_is_not_recorded(tools: Tools, monkeypatch):
    monkeypatch.setenv("REYN_SECRET_DESK_KEY", "sk-desk-0123456789abcdef")
    tools.server = {"env": {"KEY": "secret://DESK_KEY"}}
    tools.skill_keys += "required_credentials: [DESK_KEY]\n"
    assert tools.do("environment")["status"] == "denied"


# -- servers that misbehave -------------------------------------------------------------------------------------


def test_a_server_that_does_not_answer_is_a_timeout(tools: Tools):
    tools.accept()
    tools.server = {"timeout": 5}
    assert tools.run("hang", {"kind": "mcp:desk/do"})[0]["status"] == "timeout"


def test_a_server_that_dies_is_an_error_and_is_started_again(tools: Tools):
    tools.accept()
    first, second = tools.run("die", {"kind": "mcp:desk/do"}, {"kind": "mcp:desk/echo", "args": {"text": "back"}})
    assert first["status"] == "error"
    assert second["content"] == "back"


@pytest.mark.parametrize("behavior", ["flood", "huge"])
def test_a_message_beyond_the_limit_ends_the_connection(tools: Tools, behavior: str):
    assert tools.do(behavior)["status"] == "error"


def test_a_large_result_is_truncated(tools: Tools):
    found = tools.do("large")
    assert (len(found["content"]), found["truncated"]) == (200_000, True)


def test_an_error_of_a_tool_is_an_error_result(tools: Tools):
    found = tools.do("fail")
    assert (found["status"], found["error"]) == ("error", "it is broken")


def test_content_that_is_not_text_is_described(tools: Tools):
    assert tools.do("image")["content"] == "[image image/png, 3 bytes]"


def test_a_stubborn_server_ends_with_the_runtime(tools: Tools):
    tools.accept()
    assert tools.run("stubborn", {"kind": "mcp:desk/do"})[0]["status"] == "ok"


@pytest.mark.parametrize(
    ("command", "words"),
    [(["/no/such/program"], "not installed"), ([sys.executable, "-c", "print('hello')"], "cannot be used|ended")],
)
def test_a_server_that_cannot_be_started_is_an_error(tools: Tools, command: list, words: str):
    settings = {"mcp": {"servers": {"desk": {"command": command, "timeout": 120}}}}
    with SyncRuntime.open(tools.root, **settings) as runtime, pytest.raises(McpServerFailed, match=words):
        runtime.project.mcp_tools("desk")


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("sys.exit('no file notes.db')", "it ended; it wrote to standard error: no file notes.db"),
        ("print(*range(9), sep=chr(10), file=sys.stderr)", "standard error: 4 | 5 | 6 | 7 | 8"),
        ("print('x' * 900_000, 'end', file=sys.stderr)", "x end"),
        ("sys.exit('the key is ' + os.environ['KEY'])", "the key is ***"),
    ],
)
def test_the_last_lines_of_a_server_that_ends_at_its_start_are_reported(
    tools: Tools, monkeypatch: pytest.MonkeyPatch, code: str, end: str
):
    monkeypatch.setenv("REYN_SECRET_DESK_KEY", "a-secret-value")
    command = [sys.executable, "-c", f"import os, sys; {code}"]
    server = {"command": command, "timeout": 120, "env": {"KEY": "secret://DESK_KEY"}}
    settings = {"mcp": {"servers": {"desk": server}}}
    with SyncRuntime.open(tools.root, **settings) as runtime, pytest.raises(McpServerFailed) as raised:
        runtime.project.mcp_tools("desk")
    assert raised.value.message.endswith(end)
    assert len(raised.value.message) < 1_200


@pytest.mark.parametrize("rest", [3_986, 3_993, 3_998])
def test_no_part_of_a_secret_is_reported_that_begins_before_the_last_lines(
    tools: Tools, monkeypatch: pytest.MonkeyPatch, rest: int
):
    """Only the end of what a server wrote is kept, and it may begin within a secret."""
    monkeypatch.setenv("REYN_SECRET_DESK_KEY", "a-secret-value")
    command = [sys.executable, "-c", f"import os, sys; sys.stderr.write(os.environ['KEY'] + ' ' * {rest} + '.')"]
    server = {"command": command, "timeout": 120, "env": {"KEY": "secret://DESK_KEY"}}
    settings = {"mcp": {"servers": {"desk": server}}}
    with SyncRuntime.open(tools.root, **settings) as runtime, pytest.raises(McpServerFailed) as raised:
        runtime.project.mcp_tools("desk")
    assert raised.value.message.endswith("it wrote to standard error: .")


@pytest.mark.parametrize("content", ["{", "[]", '{"server": "other", "tools": []}', '{"server": "desk"}'])
def test_a_malformed_definitions_file_is_reported(tools: Tools, content: str):
    (tools.root / "reyn/mcp").mkdir(parents=True)
    (tools.root / "reyn/mcp/desk.json").write_text(content)
    with SyncRuntime.open(tools.root, **tools.configured("")) as runtime:
        assert any("MCP server `desk`" in problem for problem in runtime.services.ops.problems)


def test_a_tool_with_an_invalid_schema_is_reported_and_left_out(tools: Tools):
    tool = {"name": "bad", "inputSchema": {"type": "object", "properties": {"x": {"type": "nonsense"}}}}
    (tools.root / "reyn/mcp").mkdir(parents=True)
    (tools.root / "reyn/mcp/desk.json").write_text(json.dumps({"server": "desk", "tools": [tool]}))
    with SyncRuntime.open(tools.root, **tools.configured("")) as runtime:
        assert runtime.services.ops.get("mcp:desk/bad") is None
        assert any("desk/bad" in problem for problem in runtime.services.ops.problems)
