"""What serves all runs of a server: skills, agents, models, permissions, workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from reyn.client.runs import run_address
from reyn.client.values import Resource
from reyn.errors import Finding
from reyn.journal import RunRow
from reyn.journal.kinds import AGENT_PREFIX
from reyn.journal.results import Approval
from reyn.journal.submission import DEFAULT_QUEUE
from reyn.journal.workers import WorkerReport
from reyn.models.listing import ModelStatus
from reyn.runtime.permissions import OpReport, PermissionReport
from reyn.runtime.workers import QueuedRun
from reyn.skills.cases import TrialReport

if TYPE_CHECKING:
    from reyn.client.transport import Transport


class _Named(msgspec.Struct, frozen=True):
    name: str


class _Linted(msgspec.Struct, frozen=True):
    findings: list[Finding]


class _WithCases(msgspec.Struct, frozen=True):
    cases: list[str]


class _Models(msgspec.Struct, frozen=True):
    default: str
    models: list[ModelStatus]


class _ShownApproval(msgspec.Struct, frozen=True):
    id: int
    is_effective: bool


def _agent(name: str) -> str:
    return f"/api/agents/{quote(name, safe='')}"


def _skill(name: str, rest: str = "") -> str:
    return f"/api/skills/{quote(name, safe='')}{rest}"


class RemoteProject:
    """The skills, agents and models of a server's project."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def skill_names(self) -> list[str]:
        """Return the names of the skills."""
        return [one.name for one in await self._transport.call("GET", "/api/skills", list[_Named])]

    async def skill(self, name: str) -> Resource:
        """Return a skill: what it takes and returns, its graph, and the findings of lint."""
        return Resource(await self._transport.call("GET", _skill(name), dict[str, Any]))

    async def agent_names(self) -> list[str]:
        """Return the names of the agents."""
        return [one.name for one in await self._transport.call("GET", "/api/agents", list[_Named])]

    async def agent(self, name: str) -> Resource:
        """Return an agent: what it is told, sees and may do, and the findings of lint."""
        return Resource(await self._transport.call("GET", _agent(name), dict[str, Any]))

    async def lint(self, skill: str) -> list[Finding]:
        """Return every finding about a skill, or about an agent, as `agent:NAME`, sorted by position."""
        agent = skill.removeprefix(AGENT_PREFIX)
        path = _skill(skill) if agent == skill else _agent(agent)
        return (await self._transport.call("GET", path, _Linted)).findings

    async def cases(self, skill: str) -> list[str]:
        """Return the names of the cases of a skill."""
        return (await self._transport.call("GET", _skill(skill), _WithCases)).cases

    async def try_cases(self, skill: str, case: str | None = None) -> TrialReport:
        """Run the cases of a skill on the server with their scripted answers, in memory and without effects outside."""
        return await self._transport.call("POST", _skill(skill, "/cases"), TrialReport, {"case": case})

    async def models(self) -> list[ModelStatus]:
        """Return the configured models and those that can be pulled, with their availability."""
        return (await self._transport.call("GET", "/api/models", _Models)).models

    async def default_model(self) -> str:
        """Return the model that the setting `model` names; empty if there is none."""
        return (await self._transport.call("GET", "/api/models", _Models)).default


class RemotePermissions:
    """The permissions of the skills of a server's project, explained, and its standing approvals."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def explain(self, skill: str) -> PermissionReport:
        """Return the permissions of a skill and of its sub-skills: zones, requests, ops, and rules."""
        return await self._transport.call("GET", _skill(skill, "/permissions"), PermissionReport)

    async def explain_op(self, skill: str, op: str | Mapping[str, Any]) -> OpReport:
        """Return whether a skill may execute an op. Nothing is performed or recorded."""
        body = {"op": op if isinstance(op, str) else dict(op)}
        return await self._transport.call("POST", _skill(skill, "/permissions"), OpReport, body)

    async def approvals(self) -> list[Approval]:
        """Return the standing approvals, oldest first."""
        return await self._transport.call("GET", "/api/approvals", list[Approval])

    async def is_effective(self, approval: Approval) -> bool:
        """Return whether a standing approval was given in the project."""
        found = await self._transport.call("GET", "/api/approvals", list[_ShownApproval])
        return any(one.id == approval.id and one.is_effective for one in found)

    async def revoke(self, approval_id: int) -> None:
        """Remove a standing approval."""
        await self._transport.call("DELETE", f"/api/approvals/{approval_id}", object)

    async def warnings(self, run: str) -> tuple[str, ...]:
        """Return a message for each request of a run that no rule grants."""
        return await self._transport.call("GET", run_address(run, "/permissions"), tuple[str, ...])


class RemoteWorkers:
    """Submitted runs of a server's journal, and the workers that execute them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def hand_over(
        self, run: str, *, queue: str = DEFAULT_QUEUE, priority: int | None = None, labels: Sequence[str] = ()
    ) -> RunRow:
        """Let workers execute a run that was interrupted or waits. It stays with them."""
        body = {"queue": queue, "priority": priority, "labels": list(labels)}
        return await self._transport.call("POST", run_address(run, "/submit"), RunRow, body)

    async def all(self) -> list[WorkerReport]:
        """Return what each worker reported last."""
        return await self._transport.call("GET", "/api/workers", list[WorkerReport])

    async def queued(self) -> list[QueuedRun]:
        """Return the submitted runs that have something to do and that no worker executes, in their order."""
        return await self._transport.call("GET", "/api/submissions", list[QueuedRun])

    async def reason(self, row: RunRow) -> str:
        """Return why no worker executes a queued run."""
        return next((one.reason for one in await self.queued() if one.run_id == row.run_id), "")
