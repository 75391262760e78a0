"""Operations on the skills and the agents of the project: findings of lint, permissions, cases."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.documents import DocumentError, read_text
from reyn.errors import ReynError, SkillError
from reyn.gateway.operations import ApiCall, operation
from reyn.gateway.runs import GraphView, graph_view
from reyn.journal.kinds import AGENT_PREFIX
from reyn.skills.agents import Budget
from reyn.skills.cases import TrialReport
from reyn.skills.resolve import description_of

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.errors import Finding


class SkillItem(msgspec.Struct):
    """A skill in a list."""

    name: str
    shelf: str
    description: str


_MAX_LINE_CHARS = 300


class FindingView(msgspec.Struct):
    """A finding about a skill. `text` is the line that it is about; empty if the file cannot be read."""

    file: str
    line: int
    column: int
    code: str
    message: str
    fix: str
    severity: str
    text: str = ""


class SkillView(msgspec.Struct):
    """A skill: what it takes and returns, its graph, its cases, and the findings. A broken skill has no graph."""

    name: str
    description: str
    input: list[str]
    input_schema: dict[str, Any]
    output: str
    phases: list[str]
    graph: GraphView | None
    findings: list[FindingView]
    cases: list[str]


@operation("GET", "/api/skills", "view", result=list[SkillItem])
def list_skills(call: ApiCall) -> list[SkillItem]:
    """List the skills of the project and of the standard library."""
    library = call.site.runtime.project.library
    return [
        SkillItem(name, shelf, description_of(folder)) for name, shelf, folder in library if call.principal.sees(name)
    ]


def _findings(folder: Path, found: list[Finding]) -> list[FindingView]:
    """Return findings with the lines that they are about."""
    lines: dict[str, list[str]] = {}
    views = []
    for one in found:
        if one.file not in lines:
            lines[one.file] = []
            with suppress(DocumentError, OSError, ValueError):
                lines[one.file] = read_text(folder / one.file, one.file, inside=folder).split("\n")
        text = lines[one.file][one.line - 1] if 0 < one.line <= len(lines[one.file]) else ""
        parts = (one.file, one.line, one.column, one.code, one.message, one.fix, one.severity)
        views.append(FindingView(*parts, text[:_MAX_LINE_CHARS]))
    return views


@operation("GET", "/api/skills/{name}", "view", result=SkillView)
def get_skill(call: ApiCall) -> SkillView:
    """Return a skill with its graph and the findings of lint."""
    name, project = call.site.skill_for(call.path["name"], call.principal), call.site.runtime.project
    found = _findings(project.library.find(name), project.lint(name))
    try:
        skill = project.load(name)
    except SkillError:
        return SkillView(name, "", [], {}, "", [], None, found, project.cases(name))
    entry = skill.entry_inputs
    return SkillView(
        skill.name,
        skill.description,
        [artifact.name for artifact in entry],
        entry[0].schema if entry and isinstance(entry[0].schema, dict) else {},
        skill.result.name,
        list(skill.phases),
        graph_view(skill),
        found,
        project.cases(name),
    )


class WantedCase(msgspec.Struct, forbid_unknown_fields=True):
    """The case to run; null for all."""

    case: str | None = None


@operation("POST", "/api/skills/{name}/cases", "start", body=WantedCase, result=TrialReport)
async def try_cases(call: ApiCall) -> TrialReport:
    """Run a case of a skill, or all, with scripted answers: in memory, and without effects outside. One at a time."""
    site = call.site
    name = site.skill_for(call.path["name"], call.principal)
    site.work.check()
    async with site.trials:
        return await asyncio.to_thread(site.runtime.project.try_cases, name, call.body.case)


class AgentView(msgspec.Struct):
    """An agent. `error` says why its file cannot be read."""

    name: str
    description: str
    error: str = ""


@operation("GET", "/api/agents", "view", result=list[AgentView])
def get_agents(call: ApiCall) -> list[AgentView]:
    """List the agents of the project."""
    agents = call.site.runtime.project.agents
    found = []
    for name in agents:
        if call.principal.sees(f"{AGENT_PREFIX}{name}"):
            try:
                found.append(AgentView(name, agents.description(name)))
            except ReynError as error:
                found.append(AgentView(name, "", str(error)))
    return found


class AgentDetails(msgspec.Struct):
    """What an agent is told, sees and may do, and the findings about its file. A broken agent has findings only.

    Attributes:
        model: The model or the class of models that it names; empty for the model of the project.
        skills: The skills that it can run, a line each.
        agents: The agents that it can ask, a line each.
        budget: What one conversation may use.
    """

    name: str
    findings: list[FindingView]
    description: str = ""
    instructions: str = ""
    model: str = ""
    skills: list[str] = []
    agents: list[str] = []
    ops: list[str] = []
    memory: str = ""
    budget: Budget = Budget()


@operation("GET", "/api/agents/{name}", "view", result=AgentDetails)
def get_agent(call: ApiCall) -> AgentDetails:
    """Return an agent with the findings of lint."""
    from reyn.chat.services.router_host_adapter import router_view

    name, runtime = call.path["name"], call.site.runtime
    skill = call.site.skill_for(f"{AGENT_PREFIX}{name}", call.principal)
    found = _findings(runtime.project.root, runtime.project.lint(skill))
    if any(one.severity == "error" for one in found):
        return AgentDetails(name, found)
    agent, view = runtime.project.agents.load(name), router_view(runtime, name)
    return AgentDetails(
        name,
        found,
        runtime.project.agents.description(name),
        agent.instructions,
        agent.model.name if agent.model else agent.model_class or "",
        list(view.skills),
        list(view.agents),
        list(view.ops),
        agent.memory,
        agent.budget,
    )
