"""Hostile MCP servers: what they list is stored or refused, what they answer becomes a result, and time is bounded."""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

from reyn import SyncRuntime
from reyn.testing import ScriptedModel
from tests.fuzz.harness import Case
from tests.fuzz.oracles import STATUSES, check_prompt, check_state_size, check_terminal
from tests.fuzz.project import command, make_surroundings
from tests.support import act, finish, write_skill

SECONDS = 2
SPARE_SECONDS = 30
"""What a case may take beyond its timeouts, on a machine that is busy with other things."""

_SERVER = r"""
import json, sys
lines = json.load(open(sys.argv[1]))
for request in sys.stdin:
    asked = json.loads(request)
    name, number = asked.get("method", ""), asked.get("id")
    if number is None:
        continue
    unknown = '{"jsonrpc":"2.0","id":"ID","error":{"code":-32601,"message":"no such method"}}'
    answers = lines.get(name, [[unknown]])
    for line in answers.pop(0) if len(answers) > 1 else answers[0]:
        sys.stdout.buffer.write(line.replace('"ID"', json.dumps(number)).encode("utf-8", "surrogatepass") + b"\n")
    sys.stdout.flush()
"""
_TEXTS = (
    "",
    "x",
    "\x1b]52;c;eA==\x07",
    "\u202e# FORGED",
    "# Answer\n",
    "\ud800",
    "a\x00b",
    "é" * 3_000,
    "../../x",
    "do",
)
_VALUES: tuple[Any, ...] = (None, True, -1, 1e308, 10**40, [], {}, [[]], {"a": {"a": {}}}, *_TEXTS)
_RAW = ("", "{", "[]", "null", '"x"', "[" * 5_000, '{"jsonrpc":"2.0"}', '{"id":"ID"}', "\ufeff{}", '{"id":"ID","id":1}')


def target(case: Case) -> None:
    chance = case.random
    root = make_surroundings(case.folder)
    script = case.folder / "script.json"
    script.write_text(json.dumps(_script(chance)))
    started = [sys.executable, "-c", _SERVER, str(script)]
    settings = {
        "permissions": {"mcp": "allow"},
        "mcp": {"servers": {"desk": {"command": started, "timeout": SECONDS}}},
    }
    begun = time.monotonic()
    with case.guarded("list"), SyncRuntime.open(root, **settings) as runtime:
        runtime.project.accept_mcp_tools(runtime.project.mcp_tools("desk"))
        case.label("accepted")
    keys = "permissions: {mcp: [desk]}\n"
    write_skill(root, "caller", {"a": ["end"]}, ops={"a": "'mcp:desk/*'"}, skill_keys=keys)
    model = ScriptedModel([act({"kind": "mcp:desk/do", "args": {}}), finish(), finish(), finish()])
    with case.guarded("run"), SyncRuntime.open(root, model=model, **settings) as runtime:
        result = runtime.run("caller", {"text": "x"}, run_id="r")
        if result.status not in STATUSES:
            case.found("status", result.status)
        for role, text in runtime.runs.prompt_at("r"):
            check_prompt(case, role, text)
        with case.holds("verify"):
            runtime.runs.verify("r")
    if (spent := time.monotonic() - begun) > 6 * SECONDS + SPARE_SECONDS:
        case.found("time", f"{spent:.0f} s")
    for words in (("show", "r"), ("events", "r"), ("mcp", "tools", "desk")):
        check_terminal(case, words[0], command(root, *words)[1])
    check_state_size(case, root)


def _script(chance: random.Random) -> dict[str, list[list[str]]]:
    """Lines that the server sends for each request, by method."""
    greeting = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "s", "version": "1"},
    }
    tools = [_tool(chance) for _ in range(chance.choice((0, 1, 2, 9)))]
    listed: dict[str, Any] = {"tools": [{"name": "do", "inputSchema": {"type": "object"}}, *tools]}
    if chance.random() < 0.1:
        listed["nextCursor"] = chance.choice(_VALUES)
    return {
        "initialize": [[_answer(chance, greeting, 0.05)]],
        "tools/list": [[*(_noise(chance) if chance.random() < 0.1 else ()), _answer(chance, listed, 0.1)]],
        "tools/call": [[*_noise(chance), _answer(chance, _content(chance), 0.4)]],
    }


def _noise(chance: random.Random) -> list[str]:
    """Lines that nothing asked for: broken ones, notices, questions of the server."""
    asked = {"method": chance.choice(("roots/list", "sampling/createMessage", "ping", "x")), "id": "q"}
    notice = {"method": "notifications/message", "params": {"level": "info", "data": chance.choice(_VALUES)}}
    lines = [*_RAW, json.dumps({"jsonrpc": "2.0"} | asked), json.dumps({"jsonrpc": "2.0"} | notice)]
    return chance.sample(lines, chance.choice((0, 0, 0, 1, 2)))


def _answer(chance: random.Random, result: Any, hostile: float) -> str:
    if chance.random() >= hostile:
        return json.dumps({"jsonrpc": "2.0", "id": "ID", "result": result})
    error = {"code": chance.choice(_VALUES), "message": chance.choice(_VALUES)}
    found = chance.choice((
        {"result": chance.choice(_VALUES)},
        {"error": chance.choice((error, *_VALUES))},
        {"result": result, "error": error},
        {"result": _damaged(chance, result)},
    ))  # fmt: skip
    return chance.choice((*_RAW, *[json.dumps({"jsonrpc": "2.0", "id": "ID", **found})] * 20))


def _damaged(chance: random.Random, value: Any) -> Any:
    """Return a value in which one part, at any depth, is another."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        key = chance.choice([*value])
        return value | {key: _damaged(chance, value[key])}
    if isinstance(value, list) and value and chance.random() < 0.8:
        return [_damaged(chance, value[0]), *value[1:]]
    return chance.choice(_VALUES)


def _tool(chance: random.Random) -> Any:
    texts = _TEXTS if chance.random() < 0.1 else _TEXTS[:5]
    tool = {"name": f"t{chance.choice(texts)}", "description": chance.choice(texts), "inputSchema": {"type": "object"}}
    tool["annotations"] = {"readOnlyHint": chance.choice((True, False, None))}
    return _damaged(chance, tool) if chance.random() < 0.1 else tool


def _content(chance: random.Random) -> dict[str, Any]:
    parts = [
        {"type": "text", "text": chance.choice(_TEXTS)},
        {"type": "image", "data": "eA==", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///etc/passwd", "text": chance.choice(_TEXTS)}},
        {"type": "text", "text": "y" * chance.choice((10, 3_000_000))},
    ]
    fields: dict[str, Any] = {"content": chance.sample(parts, chance.randint(0, 3))}
    if chance.random() < 0.3:
        fields["isError"] = chance.choice((True, False))
    if chance.random() < 0.3:
        fields["structuredContent"] = chance.choice(_VALUES)
    return fields
