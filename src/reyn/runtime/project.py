"""`Project`: the parts of a project that runs need, opened on first use.

Configuration with its trust, journal, ops, skills, models, secrets and permission rules. It executes no runs.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config import ModelSettings, RunSettings, journal_key, user_config
from reyn.errors import (
    ApprovalUnknown,
    McpServerFailed,
    McpServerUnknown,
    ProjectNotFound,
    SecretStoreUnavailable,
    SkillInvalid,
)
from reyn.journal import Blob, MemoryJournal
from reyn.kernel.compiled_skill import RunContext
from reyn.kernel.inputs import check_supported
from reyn.kernel.op_performer import roots_of
from reyn.kernel.ports import SystemClock, TimedIds, Unattended
from reyn.kernel.summaries import read_summaries
from reyn.lint import lint_skill
from reyn.lint.requests import malformed_requests
from reyn.models.roster import Roster
from reyn.ops import OpSetup, standard_ops
from reyn.ops.budget import OpFailed
from reyn.ops.mcp import Connections, read_definitions, with_mcp_tools, write_definitions
from reyn.permissions import RuleError, parse_requests
from reyn.permissions.policy import policy_of
from reyn.permissions.trust import ProjectTrust, load_project
from reyn.runs.preview import preview_frame
from reyn.runs.run_reader import RunReader
from reyn.runtime.permissions import Explainer
from reyn.skills import Library, load_skill, read_skill
from reyn.workspace import PathInvalid, locate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

    from reyn.config import Config
    from reyn.context import ContextFrame
    from reyn.errors import Finding
    from reyn.journal import Approval, Journal
    from reyn.journal.sqlite import SqliteJournal
    from reyn.kernel.ports import Clock, Ids, People
    from reyn.models import Model
    from reyn.models.listing import ModelStatus
    from reyn.ops import Op
    from reyn.ops.mcp import ToolDefinitions
    from reyn.permissions import Policy
    from reyn.runtime.permissions import OpReport, OpVerdict, PermissionReport
    from reyn.secrets import Scrubber, Secrets
    from reyn.skills import Skill
STATE = ".reyn"
"""The folder below the project's root where Reyn keeps its state."""
DATABASE = "journal.db"


class Project:
    """One project: its configuration, journal, skills, models and permissions."""

    def __init__(
        self,
        root: Path,
        config: Config,
        *,
        journal: Journal | None = None,
        model: Model | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        people: People | None = None,
        ops: Iterable[Op] = (),
        trust: ProjectTrust | None = None,
        vouches: bool = False,
        allow_shell: bool = False,
        allow_unsafe_python: bool = False,
    ) -> None:
        self.root = root
        self._vouches = vouches
        self._allow_shell = allow_shell
        self._allow_unsafe_python = allow_unsafe_python
        self._project_journal: SqliteJournal | None = None
        self.config = config
        self.trust = trust or ProjectTrust(str(root))
        self.library = Library(root)
        setup = OpSetup(config, self._secret_for, self.library, self._findings_of)
        self._mcp = Connections(root)
        self.ops = with_mcp_tools(standard_ops().with_ops(*ops).set_up(setup), self._mcp, setup, root)
        self.people: People = people or Unattended()
        self._journal = journal
        self._model = model
        self._clock = clock or SystemClock()
        self._ids = ids or TimedIds()
        self._cached_reader: RunReader | None = None
        self._has_learned = False
        self._has_learned_keys = False

    @classmethod
    def open(
        cls,
        root: str | Path = ".",
        *,
        model: Model | str | None = None,
        journal: Journal | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        people: People | None = None,
        ops: Iterable[Op] = (),
        trust: bool | None = None,
        allow_shell: bool = False,
        allow_unsafe_python: bool = False,
        **settings: Any,
    ) -> Self:
        """Open a project.

        Settings in the project's files that need trust have no effect unless the project is trusted: wider file zones,
        grants, secrets that are sent to a new origin. `trust` of the runtime tells which ones were ignored.

        Args:
            root: The project's folder.
            model: A model, or the name of one; by default the one in `reyn.yaml`.
            journal: Where runs are recorded; by default `.reyn/journal.db`.
            clock: The source of time.
            ids: The source of run ids.
            people: Answers the questions of runs; by default every question waits.
            ops: Op kinds to register besides the built-in and installed ones.
            trust: Whether this program vouches for the project and its journal; by default the decision that
                `reyn trust` stored.
            allow_shell: Whether skills that a rule grants `shell` may run shell commands.
            allow_unsafe_python: Whether python steps with `mode: unsafe` may run, with all rights of this process's
                user.
            **settings: Keys of the configuration to override.
        """
        folder = Path(root).resolve()
        if not folder.is_dir():
            raise ProjectNotFound(f"no folder `{root}`")
        if isinstance(model, str):
            settings["model"], model = model, None
        loaded = load_project(folder, settings, trust=trust)
        return cls(
            folder,
            loaded.config,
            journal=journal,
            model=model,
            clock=clock,
            ids=ids,
            people=people,
            ops=ops,
            trust=loaded.trust,
            vouches=trust is True,
            allow_shell=allow_shell,
            allow_unsafe_python=allow_unsafe_python,
        )

    @cached_property
    def journal(self) -> Journal:
        """The journal. It is opened on first use, so that a refused run creates no files."""
        if self._journal is not None:
            return self._journal
        from reyn.journal.sqlite import SqliteJournal

        journal = self._project_journal = SqliteJournal(self.root / STATE, owner=journal_key())
        if self._vouches:
            journal.adopt()
        return journal

    def _check_owner(self) -> None:
        """Refuse to execute or undo runs of a journal that another user created."""
        if self._has_journal and self.journal is self._project_journal:
            self._project_journal.check_own()

    @cached_property
    def _policy(self) -> Policy:
        """The operator's rules and zones. Today's configuration holds for every run, whenever it was started."""
        return policy_of(
            self.config,
            self.ops.vocabulary.permission_keys,
            self.root,
            self.trust,
            allow_shell=self._allow_shell,
            allow_unsafe_python=self._allow_unsafe_python,
        )

    @property
    def _existing_journal(self) -> Journal:
        """The journal, or an empty one if the project has none yet: reading creates no files."""
        return self.journal if self._has_journal else MemoryJournal()

    @property
    def _has_journal(self) -> bool:
        return self._journal is not None or "journal" in vars(self) or (self.root / STATE / DATABASE).exists()

    @property
    def _reader(self) -> RunReader:
        journal = self._existing_journal
        if self._cached_reader is None or self._cached_reader.journal is not journal:
            self._cached_reader = RunReader(journal, self.ops, self._resolve_links)
        return self._cached_reader

    def _resolve_links(self, path: str) -> str:
        """Return the path that a change of a file records for the path in an op's arguments."""
        try:
            return locate(path, roots_of(self.root, self.root / STATE, "")).display_path
        except PathInvalid:
            return path

    # -- permissions -------------------------------------------------------------------------------------

    def explain_permissions(self, skill: str) -> PermissionReport:
        """Return what a run of a skill may do, and why: zones, requests, ops, and rules with their lines."""
        return self._explainer.report(skill, self.load(skill))

    def explain_op(self, skill: str, op: str | Mapping[str, Any]) -> OpReport | OpVerdict:
        """Return whether a skill may execute an op. Nothing is performed or recorded.

        Args:
            skill: Name or path of the skill.
            op: A kind, such as `file`, or a whole op, whose paths are checked as well.
        """
        loaded = self.load(skill)
        return self._explainer.kind(loaded, op) if isinstance(op, str) else self._explainer.op(loaded, dict(op))

    @property
    def _explainer(self) -> Explainer:
        return Explainer(self.root, self.root / STATE, self.config, self._policy, self.ops, self.library)

    def approvals(self) -> list[Approval]:
        """Return the standing approvals, oldest first."""
        return self._existing_journal.approvals()

    def revoke_approval(self, approval_id: int) -> None:
        """Remove a standing approval.

        Raises:
            ApprovalUnknown: There is no standing approval with this id.
        """
        if not self._existing_journal.revoke(approval_id):
            raise ApprovalUnknown(f"no standing approval {approval_id}")

    # -- skills and models -------------------------------------------------------------------------------

    def load(self, skill: str) -> Skill:
        """Load and check a skill by name or path."""
        folder = self.library.find(skill)
        loaded = load_skill(folder, self.ops.vocabulary, self.library)
        for name, one in ((skill, loaded), *loaded.skills.items()):
            try:
                parse_requests(one.permissions)
            except RuleError as error:
                result = read_skill(self.library.find(name), self.ops.vocabulary, self.library)
                findings = list(malformed_requests(result, self.ops.vocabulary))
                raise SkillInvalid(f"skill `{one.name}` has errors:", findings) from error
        check_supported(loaded, self.ops.vocabulary)
        return loaded

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
        form = self._roster.answer_form(self.config.model)
        loaded, settings = self.load(skill), self._run_settings()
        return preview_frame(loaded, input, phase, settings, self.ops, form, self._summaries(loaded, settings))

    def _run_settings(self) -> RunSettings:
        settings = RunSettings.of(self.config)
        forms = {name: self._roster.answer_form(name) for name in settings.classes.values()}
        return msgspec.structs.replace(settings, answer_forms=forms)

    def _summaries(self, skill: Skill, settings: RunSettings) -> Blob | None:
        """Return the summaries of phases that other programs left in the project, if the skill receives handoffs."""
        receives = RunContext(skill, settings, self.ops.vocabulary).uses_handoffs
        return read_summaries(self.root, self._roster.scrub) if receives else None

    def check_config(self) -> None:
        """Check the permission rules, the file zones and the name of the default model. Opens no model.

        Raises:
            ConfigInvalid: A rule or a zone is invalid.
            ModelUnknown: The default model does not exist.
        """
        policy_of(self.config, self.ops.vocabulary.permission_keys, self.root, self.trust)
        if self.config.model:
            self._roster.check_name(self.config.model)

    def models(self) -> list[ModelStatus]:
        """Return the configured models and those that can be pulled, with their availability.

        Loads no model and connects to no server.
        """
        from reyn.models.listing import list_models

        return list_models(self.config, self.root, self._existing_journal, self.secrets, self.trust.may_bind)

    async def mcp_tools(self, server: str) -> ToolDefinitions:
        """Connect to an MCP server and return the tools that it offers now. `accept_mcp_tools` makes them ops.

        Raises:
            McpServerUnknown: The configuration has no such server.
            McpServerFailed: It cannot be reached or does not answer.
        """
        settings = self.config.mcp.servers.get(server)
        if settings is None:
            known = ", ".join(f"`{name}`" for name in self.config.mcp.servers) or "none"
            note = " It may need trust." if self.trust.ignored else ""
            raise McpServerUnknown(f"no MCP server `{server}`; configured: {known}.{note}")
        credentials = {}
        for text in (*settings.env.values(), *settings.headers.values()):
            if text.startswith("secret://"):
                credentials[text] = self._secret_for(text, settings.url) if settings.url else self.secrets.resolve(text)
        try:
            return await self._mcp.definitions(server, settings, credentials)
        except OpFailed as error:
            raise McpServerFailed(str(error)) from error

    def accept_mcp_tools(self, definitions: ToolDefinitions) -> Path:
        """Write the definitions of a server's tools to the project, and return the file.

        They are ops from the next time that the project is opened.
        """
        return write_definitions(self.root, definitions)

    def accepted_mcp_tools(self, server: str) -> ToolDefinitions | None:
        """Return the accepted definitions of a server's tools; `None` if there are none."""
        return read_definitions(self.root, server)

    def _findings_of(self, folder: Path) -> list[Finding]:
        return lint_skill(folder, self.library, self.ops.vocabulary)

    @cached_property
    def _roster(self) -> Roster:
        return Roster(
            self.config.models,
            self.root,
            lambda: self._existing_journal,
            lambda: self.secrets,
            self._model,
            self.trust.may_bind,
        )

    @cached_property
    def secrets(self) -> Secrets:
        from reyn.secrets import EnvironmentStore, Secrets, open_secrets

        origins = user_config()
        try:
            return open_secrets(origins=origins)
        except SecretStoreUnavailable:  # there is no home directory
            return Secrets([], EnvironmentStore(os.environ), origins)

    def _learn_secrets(self) -> None:
        """Make the values outside the keyring known, so that they are scrubbed from everything that is recorded."""
        if not self._has_learned:
            self._has_learned = True
            self._roster.secrets().learn()

    def _all_secrets(self) -> Scrubber:
        """Return a scrubber that also knows the keys of the configured models, which may be in the keyring.

        They are read before the first op of this runtime: what an op reads may hold them.
        """
        secrets = self._roster.secrets()
        if not self._has_learned_keys:
            self._has_learned_keys = True
            entries = self.config.models.values()
            secrets.learn(entry.key for entry in entries if isinstance(entry, ModelSettings) and entry.key)
        return secrets.scrubber

    def _scrub(self, value: Any) -> Any:
        """Replace the values of secrets in a JSON value that reaches a run from outside."""
        self._learn_secrets()
        return self._roster.secrets().scrubber.scrub_value(value)

    def _secret_for(self, handle: str, url: str) -> str:
        """Return the value of a secret in order to send it to a server."""
        from reyn.secrets import origin_of

        return self.secrets.resolve_for(handle, url, may_bind=self.trust.may_bind(handle, origin_of(url)))
