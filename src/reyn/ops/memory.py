"""The ops of memory: `remember` and `forget`, in the conversation or in files, and `compact` the transcript.

What a conversation remembers is part of the run's state: the op requests the change, and the kernel records it. What an
agent remembers beyond a conversation is a file: the op plans its change, as any op that writes one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from reyn.journal.kinds import MemoryRequest
from reyn.ops.file import FileOp
from reyn.ops.memory_files import (
    MAX_DESCRIPTION,
    SHARED,
    SLUG,
    Memory,
    format_memory,
    memory_path,
    memory_scope_of,
    read_memory,
)
from reyn.ops.op import Call, MemoryOutcome, Plan
from reyn.ops.writing import plan_write
from reyn.permissions import Denied
from reyn.skills.agents import PREFIX
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, result, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.ops.op import Env, Result
    from reyn.workspace import Change

MAX_EXPERIENCE_CHARS = 2_000
_CONVERSATION = "default: change the memory of the conversation"
_FILE = FileOp()
_NAME = {"type": "string", "pattern": SLUG, "maxLength": 64, "description": "lower case words joined by `-`"}
_SHARED = {"type": "boolean", "default": False, "description": "true: for all agents"}


def agent_of(env: Env) -> str:
    """Return the agent whose conversation uses an op; empty if it is not one with an agent."""
    skill = env.gate.skill
    return skill.removeprefix(PREFIX) if skill.startswith(PREFIX) else ""


def scopes_of(env: Env) -> tuple[str, ...]:
    """Return the memories that an agent sees: its own, then the shared ones."""
    agent = agent_of(env)
    scopes = (agent, SHARED) if agent else (SHARED,)
    return tuple(scope for scope in scopes if all(request.covers("memory", scope) for request in env.gate.requests))


class RememberOp:
    """Remembers a text: without `name` for the rest of the conversation, with one in a file."""

    _FORM = OpForm(
        op=None,
        summary="Remember a text: for the rest of the conversation, or, with a name, also in later ones.",
        arguments=arguments(
            "remember",
            None,
            {"text": text(MAX_EXPERIENCE_CHARS, min_length=1)},
            optional={"name": _NAME, "description": text(MAX_DESCRIPTION), "shared": _SHARED},
        ),
        effect="idempotent",
        result=result("remember", None, {"id": {"type": "string"}, "path": {"type": "string"}}),
        example={"kind": "remember", "text": "The user prefers short answers."},
    )
    spec = OpSpec("remember", _FORM.summary, "idempotent", forms=(_FORM,), is_step=False, is_for_conversations=True)

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        args = call.args
        if "name" not in args:
            return Plan(_CONVERSATION, request=MemoryRequest("remember", args["text"]))
        scope = SHARED if args.get("shared") else agent_of(env) or SHARED
        memory = Memory(args["name"], scope, _summary(args), args["text"], call.key)
        return plan_write(call, env, memory.path, format_memory(memory), id=memory.name, path=memory.path)

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        return _requested(call, plan)

    def changes_error(
        self,
        call: Call,
        changes: tuple[Change, ...],
        content: Callable[[str], bytes],
        resolve: Callable[[str], str],
    ) -> str:
        """Return why recorded changes are not those of this call; the scope of the memory is part of the path."""
        name = call.args.get("name")
        if name is None:
            return "it changes the memory of the conversation, and no files" if changes else ""
        for change in changes:
            scope = memory_scope_of(change.path, name)
            if scope is None or change.after is None:
                return f"it does not change `{change.path}`"
            written = content(change.after).decode(errors="replace")
            step = call.key.rpartition("/")[2]
            # The run in the source is that of a fork's origin, if the fork inherited the change.
            source = next((line[8:] for line in written.split("\n") if line.startswith("source: ")), "").strip("'\"")
            memory = Memory(name, scope, _summary(call.args), call.args["text"], source)
            if source.rpartition("/")[2] != step or format_memory(memory) != written:
                return f"it writes something else to `{change.path}`"
        return "" if len(changes) < 2 else "it changes one file"


class ForgetOp:
    """Forgets what the conversation remembers, by its id, or a memory in a file, by its name."""

    _FORM = OpForm(
        op=None,
        summary="Forget something that is remembered, by its id or name.",
        arguments=arguments("forget", None, {"id": text(64, min_length=1)}, optional={"shared": _SHARED}),
        effect="idempotent",
        result=result("forget", None, {"id": {"type": "string"}, "path": {"type": "string"}}),
        example={"kind": "forget", "id": "exp_1"},
    )
    spec = OpSpec("forget", _FORM.summary, "idempotent", forms=(_FORM,), is_step=False, is_for_conversations=True)

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        name = call.args["id"]
        scopes = (SHARED,) if call.args.get("shared") else scopes_of(env)
        scope = next((one for one in scopes if read_memory(env.roots.project, name, one) is not None), None)
        if scope is None:
            return Plan(_CONVERSATION, request=MemoryRequest("forget", name))
        path = memory_path(name, scope)
        plan = _FILE.plan(Call(call.key, {"kind": "file", "op": "delete", "path": path}), env)
        if isinstance(plan, Denied):
            return plan
        assert plan.result is not None
        if plan.result["status"] != "ok":
            return Plan(plan.rule, result=call.error(str(plan.result.get("error", ""))))
        return replace(plan, result=call.ok(id=name, path=path))

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        return _requested(call, plan)

    def changes_error(
        self,
        call: Call,
        changes: tuple[Change, ...],
        content: Callable[[str], bytes],
        resolve: Callable[[str], str],
    ) -> str:
        """Return why recorded changes are not those of this call."""
        for change in changes:
            if memory_scope_of(change.path, call.args["id"]) is None or change.after is not None:
                return f"it does not change `{change.path}`"
        return "" if len(changes) < 2 else "it changes one file"


class CompactOp:
    """Asks for a compaction of the transcript before the next turn."""

    _FORM = OpForm(
        op=None,
        summary="Replace older messages of the conversation by a summary.",
        arguments=arguments("compact", None, {}),
        effect="idempotent",
        result=result("compact", None, {"id": {"type": "string"}}),
        example={"kind": "compact"},
    )
    spec = OpSpec("compact", _FORM.summary, "idempotent", forms=(_FORM,), is_step=False, is_for_conversations=True)

    def plan(self, call: Call, env: Env) -> Plan:
        return Plan(_CONVERSATION, request=MemoryRequest("compact", ""))

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        return _requested(call, plan)


def _requested(call: Call, plan: Plan) -> Result:
    """Return the result of a change that the kernel recorded."""
    outcome: MemoryOutcome = plan.answer
    if outcome.error:
        return call.error(outcome.error)
    return call.ok(id=outcome.id) if outcome.id else call.ok()


def _summary(args: dict[str, Any]) -> str:
    """Return what a memory is about, in one line."""
    return " ".join(str(args.get("description") or args["text"]).split())[:MAX_DESCRIPTION]
