"""`Project`: what a user asks about an open project, as `rt.project`: first frames, models, MCP servers, settings.

`inspect_journal` reports on the owner of a journal before the project is opened.
"""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import CaseInvalid, IndexRefused, McpServerFailed, McpServerUnknown
from reyn.journal.kinds import AGENT_PREFIX
from reyn.journal.opening import JournalPlace
from reyn.journal.port import DATABASE, STATE
from reyn.journal.state_folder import project_identity
from reyn.kernel.world.environments import roots_of
from reyn.kernel.world.loading import pin_model
from reyn.lint import lint_agent
from reyn.ops import Denied, Env
from reyn.ops.budget import OpFailed
from reyn.ops.file.searching import TOO_LONG
from reyn.ops.mcp import ToolDefinitions, read_definitions, write_definitions
from reyn.ops.retrieval import INDEX_NAME, write_files
from reyn.permissions import Gate
from reyn.permissions.policy import policy_of
from reyn.runs.preview import Preview, preview_frame
from reyn.runtime.notifying import Notifier
from reyn.skills.cases import TrialReport, case_names
from reyn.texts import counted
from reyn.workspace import PathInvalid, locate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from reyn.config import Config
    from reyn.context.frame import ContextFrame
    from reyn.errors import Finding
    from reyn.kernel.world.op_performer import OpPerformer
    from reyn.kernel.world.services import Services
    from reyn.models.listing import ModelStatus
    from reyn.ops import Overview
    from reyn.packages import EnvironmentStatus, PackageEnvironments
    from reyn.permissions.trust import ProjectTrust
    from reyn.retrieval import IndexOverview, SearchResult, WriteReport
    from reyn.skills import Library, Skill
    from reyn.skills.agents import Agents


class Project:
    """An open project.

    Attributes:
        root: The project's folder.
        config: The settings in effect.
        trust: The decision about the settings that need trust.
        library: The skills of the project.
        agents: The agents of the project.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self.root: Path = services.root
        self.config: Config = services.config
        self.trust: ProjectTrust = services.trust
        self.library: Library = services.library
        self.agents: Agents = services.agents

    async def first_frame(self, skill: str, input: Any = None, *, phase: str | None = None) -> ContextFrame:
        """Return the frame that the model sees first in a run with this input. Records nothing.

        Preprocessor steps run only if they read, and no rule denies or asks; otherwise `warnings` of the frame says so.

        Args:
            skill: Name or path of the skill.
            input: An input of the phase's type; by default, its first type with empty data.
            phase: The phase whose frame to return, as if the run started there; by default the entry phase.

        Raises:
            InputInvalid: The input does not fit the phase, or there is no such phase.
        """
        services = self._services
        loaded, settings = services.load(skill), services.run_settings()
        model, summaries = pin_model(services.roster, self.config.model), services.summaries(loaded, settings)

        def performer() -> OpPerformer:
            services.check_owner()  # a standing approval may let a step read
            return services.performer

        preview = Preview(settings, services.ops.vocabulary, model, summaries, performer)
        return await preview_frame(loaded, input, phase, preview)

    # -- search indexes -------------------------------------------------------------------------------

    def indexes(self) -> list[IndexOverview]:
        """Return the search indexes of the project, by name."""
        return self._services.indexes.overviews()

    async def write_index(self, name: str, *paths: str, replaces: bool = False) -> WriteReport:
        """Bring a search index up to date with the documents below folders: Markdown, text and HTML.

        Only what is new or has changed is embedded; what is gone is removed.

        Args:
            name: The index, which is made if there is none.
            *paths: Folders and documents, relative to the project, which the zone `files.read` covers.
            replaces: Whether the index keeps no other documents.

        Raises:
            IndexRefused: The name is invalid, or the rules do not allow a folder to be read.
            DocumentUnreadable: The only document has no text.
        """
        if not re.fullmatch(INDEX_NAME, name):
            raise IndexRefused(f"`{name:.80}` cannot be the name of an index")
        services = self._services
        services.check_owner()
        _ = services.journal
        gate = Gate(roots_of(services.root, services.state_folder, "no-run"), services.read_policy(), (), "")
        env = Env.without_run(gate, services.config.sizes.file_bytes)
        try:
            bases = [locate(path, gate.roots) for path in paths]
        except PathInvalid as error:
            raise IndexRefused(str(error)) from error
        for base in bases:
            if isinstance(verdict := gate.search(base), Denied):
                raise IndexRefused(f"`{base.display_path}`: {verdict.reason}")
        try:
            return await write_files(services.indexes, name, bases, env, replaces=replaces)
        except (TimeoutError, OpFailed) as error:
            raise IndexRefused(str(error) or TOO_LONG) from error

    async def search_index(self, name: str, question: str, limit: int = 5) -> SearchResult:
        """Return the passages of a search index that match a question best.

        Raises:
            IndexMissing: There is no such index.
            IndexOutdated: It was made with another embedder.
        """
        return await self._services.indexes.search(name, question, limit)

    def drop_index(self, name: str) -> int:
        """Remove a search index; return how many documents it had.

        Raises:
            IndexMissing: There is no such index.
        """
        self._services.check_owner()
        return self._services.indexes.drop(name)

    # -- environments ---------------------------------------------------------------------------------

    @property
    def _packages(self) -> PackageEnvironments:
        return self._services.performer.environments.packages

    def environments(self) -> list[EnvironmentStatus]:
        """Return the declared environments with packages, by name, and whether they can be used."""
        return [self._packages.status(name) for name in sorted(self.config.environments)]

    def environment(self, name: str) -> EnvironmentStatus:
        """Return one environment.

        Raises:
            EnvironmentUnknown: It is not declared.
        """
        return self._packages.status(name)

    def make_environment(
        self, name: str, *, allow_source: bool = False, report: Callable[[str], None] = lambda step: None
    ) -> EnvironmentStatus:
        """Make an environment from its requirements file with pip, in place of the one that there may be.

        Args:
            name: The environment.
            allow_source: Whether packages without a wheel are built from source, which runs their code.
            report: Receives a line of progress now and then.

        Raises:
            EnvironmentUnknown: It is not declared.
            RequirementsInvalid: The requirements have no hashes, or name something else than packages of the index.
            EnvironmentNotMade: pip failed, or another process makes it now. The one that exists stays as it is.
        """
        from reyn.packages.making import make_environment

        self._services.check_owner()
        return make_environment(self._packages, name, allow_source=allow_source, report=report)

    def lock_environment(self, name: str, *, report: Callable[[str], None] = lambda step: None) -> list[str]:
        """Write the requirements file of an environment from the file without versions and hashes.

        Raises:
            EnvironmentUnknown: It is not declared.
            RequirementsInvalid: The file names something else than packages of the index.
            EnvironmentNotMade: The packages do not resolve, or one has no wheel.
        """
        from reyn.packages.making import lock_requirements

        return lock_requirements(self._packages, name, report=report)

    def load(self, skill: str) -> Skill:
        """Load and check a skill by name or path; `agent:NAME` is a conversation with an agent of one turn."""
        return self._services.load(skill)

    def lint(self, skill: str) -> list[Finding]:
        """Return every finding about a skill, by name or path, or an agent, as `agent:NAME`, sorted by position."""
        if skill.startswith(AGENT_PREFIX):
            name, services = skill.removeprefix(AGENT_PREFIX), self._services
            return lint_agent(services.agents, name, services.skill_names, services.ops.vocabulary)
        return self._services.findings_of(self.library.find(skill))

    def cases(self, skill: str) -> list[str]:
        """Return the names of the cases of a skill, by name or path."""
        return case_names(self.library.find(skill))

    def try_cases(self, skill: str, case: str | None = None) -> TrialReport:
        """Run the cases of a skill with their scripted answers, in memory and without effects outside.

        The results of an unchanged skill are remembered.

        Args:
            skill: Name or path of the skill.
            case: The name of a case to report about; by default all.

        Raises:
            SkillNotFound: There is no such skill.
            CaseInvalid: There is no such case.
        """
        report = self._services.try_folder(self.library.find(skill))
        if case is None:
            return report
        found = tuple(one for one in report.cases if one.name == case)
        if not found:
            raise CaseInvalid(f"the skill `{skill}` has no case `{case}`")
        return TrialReport(found)

    def overviews(self, skill: Skill, message: str = "") -> dict[str, Overview]:
        """Return what the ops of a conversation can act on, by op kind, as its first prompt would show it.

        Args:
            skill: The skill of the conversation.
            message: What the user says. If not everything fits the prompt, what matches it best comes first.
        """
        return self._services.performer.overviews(skill, self.config.sizes, message)

    def models(self) -> list[ModelStatus]:
        """Return the configured models and those that can be pulled, with their availability.

        Loads no model and connects to no server.
        """
        from reyn.models.listing import list_models

        return list_models(
            self.config,
            self.root,
            self._services.existing_journal,
            self._services.secrets,
            self.trust.ignored_models,
        )

    def default_model(self) -> str:
        """Return the model that the setting `model` names, after following aliases; empty if there is none.

        Raises:
            ModelUnknown: It is an alias of itself, or needs trust.
        """
        return self._services.roster.resolve(self.config.model)[1].model

    def preload_model(self, name: str | None = None) -> None:
        """Import the SDK of a model, by default of the default one. It takes seconds on a slow machine.

        Another thread may call it while the user writes. Errors are reported when the model is called.
        """
        self._services.roster.preload(name or self.config.model or "")

    def check_config(self) -> None:
        """Check the permission rules, the file zones and the name of the default model. Opens no model.

        Raises:
            ConfigInvalid: A rule or a zone is invalid.
            ModelUnknown: The default model does not exist.
        """
        policy_of(self.config, self._services.ops.vocabulary.permission_keys, self.root, self.trust)
        if self.config.model:
            self._services.roster.check_name(self.config.model)

    async def mcp_tools(self, server: str) -> ToolDefinitions:
        """Connect to an MCP server and return the tools that it offers now. `accept_mcp_tools` makes them ops.

        Raises:
            McpServerUnknown: The configuration has no such server.
            McpServerFailed: It cannot be reached or does not answer.
        """
        settings = self.config.mcp.servers.get(server)
        if settings is None:
            known = ", ".join(f"`{name}`" for name in self.config.mcp.servers) or "none"
            note = "; it may need trust" if self.trust.ignored else ""
            hint = "Trust the project, if the server is in its configuration." if note else None
            raise McpServerUnknown(f"no MCP server `{server}`; configured: {known}{note}", hint=hint)
        credentials = {}
        for text in (*settings.env.values(), *settings.headers.values()):
            if text.startswith("secret://"):
                url = settings.url
                credentials[text] = (
                    self._services.secret_for(text, url) if url else self._services.secrets.resolve(text)
                )
        try:
            return await self._services.mcp.definitions(server, settings, credentials)
        except OpFailed as error:
            raise McpServerFailed(str(error)) from error

    async def notify(self, link: str) -> None:
        """Call the command or the webhook of `notify` when a question opens or a run fails, until cancelled.

        Args:
            link: The address of the web pages, to which notifications link.
        """
        if self.config.notify is not None:
            await Notifier(self._services, link).watch()

    def accept_mcp_tools(self, definitions: ToolDefinitions) -> Path:
        """Write the definitions of a server's tools to the project, and return the file.

        They are ops from the next time that the project is opened.
        """
        return write_definitions(self.root, definitions)

    def accepted_mcp_tools(self, server: str) -> ToolDefinitions | None:
        """Return the accepted definitions of a server's tools; `None` if there are none."""
        return read_definitions(self.root, server)


class JournalReport(msgspec.Struct, frozen=True):
    """The contents of a journal. `is_own` is true if there is no journal."""

    is_own: bool = True
    runs: int = 0
    approvals: int = 0

    @property
    def text(self) -> str:
        """Describes the effect of trusting the journal."""
        return f"{STATE}/{DATABASE}: continue {counted(self.runs, 'run')}, honour {counted(self.approvals, 'approval')}"


def inspect_journal(root: Path, *, adopt: bool = False) -> JournalReport:
    """Report on the journal of a project.

    Args:
        root: The project's folder.
        adopt: Whether to mark a journal that is not the user's own as such, with everything that it holds.
    """
    place = JournalPlace.of(root, adopts=adopt)
    if not place.has_journal or place.is_read_only:
        return JournalReport()
    with closing(place.open_file()) as journal:
        identity = project_identity(root)
        approvals = [approval for approval in journal.approvals() if approval.is_of(identity)]
        return JournalReport(journal.is_own(), sum(journal.count_by_status().values()), len(approvals))
