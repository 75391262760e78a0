"""Operations on the skills and the agents of the project: findings of lint, permissions, cases."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from reyn.errors import ReynError, SkillError
from reyn.gateway.operations import ApiCall, operation
from reyn.gateway.runs import GraphView, graph_view
from reyn.journal.kinds import AGENT_PREFIX
from reyn.skills.cases import TrialReport


class SkillItem(msgspec.Struct):
    """A skill in a list."""

    name: str
    shelf: str


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
    """A skill: what it takes and returns, its graph, and the findings about it. A broken skill has findings only."""

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
    return [SkillItem(name, shelf) for name, shelf, _ in library if call.principal.sees(name)]


def _finding(one: Finding) -> FindingView:
    return FindingView(
        one.file, one.line, one.column, one.code, one.message, one.fix, one.severity, one.source[:_MAX_LINE_CHARS]
    )


@operation("GET", "/api/skills/{name}", "view", result=SkillView)
def get_skill(call: ApiCall) -> SkillView:
    """Return a skill with its graph and the findings of lint."""
    name, project = call.site.skill_for(call.path["name"], call.principal), call.site.runtime.project
    found = [_finding(one) for one in project.lint(name)]
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


SKILL_OPERATIONS = (list_skills, get_skill, try_cases, get_agents)
