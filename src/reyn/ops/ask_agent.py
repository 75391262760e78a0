"""The op `ask_agent`: send a message to another agent, and take its reply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.errors import ReynError
from reyn.journal import Blob
from reyn.journal.kinds import MessageRequest
from reyn.ops.memory import agent_of
from reyn.ops.op import MessageOutcome, Overview, Plan
from reyn.permissions import Denied
from reyn.skills.agents import Agents
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, result, text

if TYPE_CHECKING:
    from reyn.ops.op import Call, Env, Result

MAX_MESSAGE_CHARS = 20_000
_MAX_LISTED = 50
_MAX_DESCRIPTION = 200
_FORM = OpForm(
    op=None,
    summary="Send a message to another agent and take its reply.",
    arguments=arguments(
        "ask_agent", None, {"agent": text(64, min_length=1), "message": text(MAX_MESSAGE_CHARS, min_length=1)}
    ),
    effect="idempotent",
    result=result(
        "ask_agent",
        None,
        {
            "agent": {"type": "string"},
            "state": {
                "enum": ["completed", "failed", "canceled", "rejected", "input-required", "auth-required"],
                "description": "only `completed` has a reply",
            },
            "reply": {"type": "string"},
            "run": {"type": "string", "description": "the conversation with the agent"},
        },
    ),
    example={"kind": "ask_agent", "agent": "designer", "message": "Which colour fits a tea shop?"},
)


class AskAgentOp:
    """Asks through a request to the kernel, which delivers the message.

    The other agent has rights of its own, so the gate decides about each agent that is asked.
    """

    spec = OpSpec("ask_agent", _FORM.summary, "idempotent", "agent", forms=(_FORM,), is_step=False,
                  is_for_conversations=True, has_overview=True)  # fmt: skip

    def target(self, call: Call) -> str:
        return str(call.args["agent"])

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        agent, message = call.args["agent"], call.args["message"]
        if agent == agent_of(env):
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
        agents, own = Agents(env.roots.project), agent_of(env)
        lines = []
        for name in agents:
            if name == own or not all(requests.covers("agent", name) for requests in env.gate.requests):
                continue
            try:
                about = agents.description(name)
            except ReynError:
                continue  # it cannot be asked until its file is fixed
            lines.append(f"{name}: {about[:_MAX_DESCRIPTION] or 'no description'}")
        return Overview("Agents that you can ask", tuple(lines[:_MAX_LISTED]))
