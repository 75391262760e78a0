"""Open a conversation: find the agent and its skill, derive the runtime that executes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from reyn.chat.conversation import Conversation
from reyn.chat.conversation_run import Beginning
from reyn.chat.services.snapshot_journal import check_conversation
from reyn.errors import AgentNotFound, RunIdInvalid
from reyn.journal.family import check_not_imported
from reyn.journal.kinds import AGENT_PREFIX
from reyn.journal.port import MAX_ROOT_RUN_ID, is_run_id
from reyn.skills.agents import AGENTS, DEFAULT, Agent, Agents

if TYPE_CHECKING:
    from reyn.journal import RunRow
    from reyn.kernel.world.services import Listener
    from reyn.runtime import OSRuntime


def open_conversation(
    runtime: OSRuntime,
    agent: str | None = None,
    *,
    run_id: str | None = None,
    by: str = "",
    model: str | None = None,
    listener: Listener | None = None,
) -> Conversation:
    """Open a conversation on a runtime; `chat` of `reyn.OSRuntime` documents the arguments.

    `listener` receives every event of the conversation after it is durable.
    """
    services = runtime.services
    if run_id is not None and runtime.runs.is_recorded(run_id):
        row = runtime.runs.find(run_id)
        check_conversation(row, agent)
        check_not_imported(row, "continued")
        run_id, loaded = row.run_id, recorded_agent(services.agents, row)
    else:
        if run_id is not None and not is_run_id(run_id, MAX_ROOT_RUN_ID):
            raise RunIdInvalid(f"{run_id!r:.100} is not a valid run id")
        loaded = services.agents.load(agent or DEFAULT)
    return Conversation(
        lambda people: _derived(runtime, loaded, people, model),
        Beginning(services.agent_skill(loaded.name)),
        services.ids.new() if run_id is None else run_id,
        agent=loaded,
        by=by,
        model=model,
        listener=listener,
    )


def recorded_agent(agents: Agents, row: RunRow) -> Agent:
    """Return the agent of a recorded conversation.

    Raises:
        AgentNotFound: Its file was removed.
        SkillInvalid: Its file has errors.
    """
    name, run_id = row.skill.removeprefix(AGENT_PREFIX), row.run_id
    try:
        return agents.load(name)
    except AgentNotFound as error:
        message = f"conversation `{run_id}` is one with the agent `{name}`, and there is no file `{AGENTS}/{name}.md`"
        raise AgentNotFound(message, hint="Restore the file to continue.") from error


def _derived(runtime: OSRuntime, agent: Agent, people: Any, model: str | None) -> OSRuntime:
    """Return the runtime of a conversation: the agent's model and limits, and people who are asked in it."""
    limits = runtime.project.config.limits
    if agent.budget.tokens is not None:
        limits = replace(limits, tokens=min(agent.budget.tokens, limits.tokens or agent.budget.tokens))
    named = model or runtime.services.roster.project_name(agent.model)
    return runtime.derive(model=named, people=people, limits=limits)
