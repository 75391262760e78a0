"""The methods of a runtime about its project: skills, permissions, models and MCP servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.errors import ApprovalUnknown, McpServerFailed, McpServerUnknown
from reyn.ops.budget import OpFailed
from reyn.ops.mcp import read_definitions, write_definitions
from reyn.permissions.policy import policy_of
from reyn.runs.preview import preview_frame
from reyn.runtime.base import RuntimeBase
from reyn.runtime.permissions import Explainer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from reyn.config import Config
    from reyn.context.frame import ContextFrame
    from reyn.journal import Approval, Journal
    from reyn.kernel.runtime_types import People
    from reyn.models.listing import ModelStatus
    from reyn.ops import OpTable, Overview
    from reyn.ops.mcp import Connections, ToolDefinitions
    from reyn.permissions.trust import ProjectTrust
    from reyn.runtime.permissions import OpReport, OpVerdict, PermissionReport
    from reyn.secrets import Secrets
    from reyn.skills import Library, Skill
    from reyn.skills.agents import Agents
    from reyn.skills.cases import TrialReport


class ProjectApi(RuntimeBase):
    """A project: its settings, skills, permissions, models and MCP servers."""

    @property
    def root(self) -> Path:
        """The project's folder."""
        return self._project.root

    @property
    def config(self) -> Config:
        """The settings in effect."""
        return self._project.config

    @property
    def trust(self) -> ProjectTrust:
        """The settings that were ignored because the project is not trusted."""
        return self._project.trust

    @property
    def library(self) -> Library:
        """The folders of skills."""
        return self._project.library

    @property
    def people(self) -> People:
        """Replies to the questions of runs."""
        return self._project.people

    @property
    def ops(self) -> OpTable:
        """The ops: built in, of installed packages, of the project's `tools`, and those that the caller passed."""
        return self._project.ops

    @property
    def mcp(self) -> Connections:
        """The connections to MCP servers."""
        return self._project.mcp

    @property
    def journal(self) -> Journal:
        """The journal. It is opened on first use, so that a refused run creates no files."""
        return self._project.journal

    @property
    def secrets(self) -> Secrets:
        """The secrets of the user, by name."""
        return self._project.secrets

    @property
    def agents(self) -> Agents:
        """The agents of the project, by name."""
        return self._project.agents

    def agent_skill(self, agent: str) -> Skill:
        """Load and check the skill of a conversation with an agent."""
        return self._project.agent_skill(agent)

    def overviews(self, skill: Skill, message: str = "") -> dict[str, Overview]:
        """Return what the ops of a conversation can act on, by op kind, as its first prompt would show it.

        Args:
            skill: The skill of the conversation.
            message: What the user says. If not everything fits the prompt, what matches it best comes first.
        """
        return self._executor.op_performer.overviews(skill, self._project.config.sizes, message)

    def new_run_id(self) -> str:
        """Return an id that no run has."""
        return self._project.ids.new()

    def load(self, skill: str) -> Skill:
        """Load and check a skill by name or path."""
        return self._project.load(skill)

    def try_cases(self, skill: str) -> TrialReport:
        """Run the cases of a skill with their scripted answers, in memory and without effects outside.

        Args:
            skill: Name or path of the skill.

        Raises:
            SkillNotFound: There is no such skill.
        """
        return self._project.try_cases(self._project.library.find(skill))

    def first_frame(self, skill: str, input: Any = None, *, phase: str | None = None) -> ContextFrame:
        """Return the frame that the model sees first in a run with this input. Records nothing.

        Preprocessor steps run only if they have no side effects; otherwise `warnings` of the frame says so.

        Args:
            skill: Name or path of the skill.
            input: An input of the phase's type; by default, its first type with empty data.
            phase: The phase whose frame to return, as if the run started there; by default the entry phase.

        Raises:
            InputInvalid: The input does not fit the phase, or there is no such phase.
        """
        form, limit = (
            self._project.roster.answer_form(self._project.config.model),
            self._project.roster.prompt_limit(self._project.config.model),
        )
        loaded, settings = self._project.load(skill), self._project.run_settings()
        return preview_frame(
            loaded, input, phase, settings, self._project.ops, form, self._project.summaries(loaded, settings), limit
        )

    def check_config(self) -> None:
        """Check the permission rules, the file zones and the name of the default model. Opens no model.

        Raises:
            ConfigInvalid: A rule or a zone is invalid.
            ModelUnknown: The default model does not exist.
        """
        policy_of(
            self._project.config, self._project.ops.vocabulary.permission_keys, self._project.root, self._project.trust
        )
        if self._project.config.model:
            self._project.roster.check_name(self._project.config.model)

    def preload_model(self, name: str | None = None) -> None:
        """Import the SDK of a model, by default of the default one. It takes seconds on a slow machine.

        Another thread may call it while the user writes. Errors are reported when the model is called.
        """
        self._project.roster.preload(name or self._project.config.model or "")

    def explain_permissions(self, skill: str) -> PermissionReport:
        """Return the permissions of a skill: zones, requests, ops, and rules with their lines."""
        return self._explainer.report(skill, self._project.load(skill))

    def explain_op(self, skill: str, op: str | Mapping[str, Any]) -> OpReport | OpVerdict:
        """Return whether a skill may execute an op. Nothing is performed or recorded.

        Args:
            skill: Name or path of the skill.
            op: A kind, such as `file`, or a whole op, whose paths are checked as well.
        """
        loaded = self._project.load(skill)
        return self._explainer.kind(loaded, op) if isinstance(op, str) else self._explainer.op(loaded, dict(op))

    @property
    def _explainer(self) -> Explainer:
        return Explainer(
            self._project.root,
            self._project.state_folder,
            self._project.config,
            self._project.policy,
            self._project.ops,
            self._project.library,
        )

    def approvals(self) -> list[Approval]:
        """Return the standing approvals, oldest first."""
        return self._project.existing_journal.approvals()

    def revoke_approval(self, approval_id: int) -> None:
        """Remove a standing approval.

        Raises:
            ApprovalUnknown: There is no standing approval with this id.
        """
        if not self._project.existing_journal.revoke(approval_id):
            raise ApprovalUnknown(f"no standing approval {approval_id}")

    def models(self) -> list[ModelStatus]:
        """Return the configured models and those that can be pulled, with their availability.

        Loads no model and connects to no server.
        """
        from reyn.models.listing import list_models

        return list_models(
            self._project.config,
            self._project.root,
            self._project.existing_journal,
            self._project.secrets,
            self._project.trust.may_bind,
            self._project.trust.ignored_models,
        )

    def default_model(self) -> str:
        """Return the model that the setting `model` names, after following aliases; empty if there is none.

        Raises:
            ModelUnknown: It is an alias of itself, or needs trust.
        """
        return self._project.roster.resolve(self._project.config.model)[1].model

    async def mcp_tools(self, server: str) -> ToolDefinitions:
        """Connect to an MCP server and return the tools that it offers now. `accept_mcp_tools` makes them ops.

        Raises:
            McpServerUnknown: The configuration has no such server.
            McpServerFailed: It cannot be reached or does not answer.
        """
        settings = self._project.config.mcp.servers.get(server)
        if settings is None:
            known = ", ".join(f"`{name}`" for name in self._project.config.mcp.servers) or "none"
            note = "; it may need trust" if self._project.trust.ignored else ""
            hint = "Trust the project, if the server is in its configuration." if note else None
            raise McpServerUnknown(f"no MCP server `{server}`; configured: {known}{note}", hint=hint)
        credentials = {}
        for text in (*settings.env.values(), *settings.headers.values()):
            if text.startswith("secret://"):
                credentials[text] = (
                    self._project.secret_for(text, settings.url)
                    if settings.url
                    else self._project.secrets.resolve(text)
                )
        try:
            return await self._project.mcp.definitions(server, settings, credentials)
        except OpFailed as error:
            raise McpServerFailed(str(error)) from error

    def accept_mcp_tools(self, definitions: ToolDefinitions) -> Path:
        """Write the definitions of a server's tools to the project, and return the file.

        They are ops from the next time that the project is opened.
        """
        return write_definitions(self._project.root, definitions)

    def accepted_mcp_tools(self, server: str) -> ToolDefinitions | None:
        """Return the accepted definitions of a server's tools; `None` if there are none."""
        return read_definitions(self._project.root, server)
