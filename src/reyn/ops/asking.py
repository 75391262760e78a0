"""The ops `ask_user` and `ask_agent`: ask a person a question, or another agent, and wait for the answer."""

from __future__ import annotations

from typing import Any

import msgspec

from reyn.errors import ReynError
from reyn.journal import Blob, canonical, digest
from reyn.journal.kinds import AskRequest, MessageRequest
from reyn.ops.op import Call, Env, MessageOutcome, Plan, Result
from reyn.ops.overviews import Overview
from reyn.permissions import Denied
from reyn.skills.agents import Agents, agent_of
from reyn.vocabulary.schemas import STRING, array, boolean, single_form, text

MAX_AGENT_MESSAGE_CHARS = 20_000
_MAX_LISTED = 50
_MAX_DESCRIPTION = 200


class AskUserOp:
    """Asks through a request to the kernel, which waits for the answer durably."""

    spec = single_form(
        "ask_user",
        "Put a question to a person and wait for the answer.",
        "idempotent",
        {"question": text(4_000, min_length=1)},
        {"suggestions": array(text(400), 20), "required": boolean(default=True)},
        results={"question": STRING, "answer": {}},
        example={"question": "Which tone should the report have?", "suggestions": ["formal", "plain"]},
        permission="ask_user",
        is_step=False,
    )

    def plan(self, call: Call, env: Env) -> Plan:
        args = self.spec.complete(call.args)
        schema: dict[str, Any] = {"type": "string", "minLength": 1}
        if not args["required"]:
            schema = {"type": ["string", "null"]}
        request = AskRequest(args["question"], schema, tuple(args.get("suggestions", ())))
        return Plan(request=request)

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        return self.result_of(call, plan.answer)

    def result_of(self, call: Call, answer: Any) -> Result:
        """Return the result that follows from the reply of a person."""
        return call.ok(question=call.args["question"], answer=answer)


class AskAgentOp:
    """Asks through a request to the kernel, which delivers the message.

    The other agent has rights of its own, so the gate decides about each agent that is asked.
    """

    spec = single_form(
        "ask_agent",
        "Send a message to another agent and take its reply.",
        "idempotent",
        {"agent": text(64, min_length=1), "message": text(MAX_AGENT_MESSAGE_CHARS, min_length=1)},
        results={
            "agent": STRING,
            "state": {
                "enum": ["completed", "failed", "canceled", "rejected", "input-required", "auth-required"],
                "description": "only `completed` has a reply",
            },
            "reply": STRING,
            "run": {"type": "string", "description": "the conversation with the agent"},
        },
        example={"agent": "designer", "message": "Which colour fits a tea shop?"},
        permission="agent",
        is_step=False,
        is_for_conversations=True,
        has_overview=True,
    )

    def target(self, call: Call) -> str:
        return str(call.args["agent"])

    def version(self, call: Call, env: Env) -> str:
        try:
            agent = Agents(env.roots.project).load(call.args["agent"])
        except ReynError:
            return ""
        return digest(canonical(msgspec.to_builtins(agent)))

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        agent, message = call.args["agent"], call.args["message"]
        if agent == agent_of(env.gate.skill):
            return Denied("default: no agent asks itself", f"you are `{agent}`; answer yourself")
        if not message.strip():
            return Plan(result=call.error("the message is blank"))
        content = Blob.of(message.encode())
        return Plan(request=MessageRequest(agent, content.hash), blobs=(content,))

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        outcome: MessageOutcome = plan.answer
        fields = {"agent": call.args["agent"], "state": outcome.state}
        if outcome.run_id:
            fields["run"] = call.relative(outcome.run_id)
        if outcome.state == "completed":
            return call.ok(**fields, reply=outcome.reply)
        return (call.timeout if outcome.timed_out else call.error)(outcome.error, **fields)

    def overview(self, query: str, env: Env) -> Overview:
        """List the agents that may be asked."""
        agents, own = Agents(env.roots.project), agent_of(env.gate.skill)
        lines = []
        for name in agents:
            if name == own or isinstance(env.gate.capability("agent", name), Denied):
                continue
            try:
                about = agents.description(name)
            except ReynError:
                continue  # it cannot be asked until its file is fixed
            lines.append(f"{name}: {about[:_MAX_DESCRIPTION] or 'no description'}")
        return Overview("Agents that you can ask", tuple(lines[:_MAX_LISTED]))
