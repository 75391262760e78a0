"""What the runs of a project use: journal, skills, ops, models, secrets, clock, ids, people.

Everything is opened on first use. `reyn.runtime.executor` executes runs with it; `reyn.runtime.project` adds what a
user asks about a project.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config import ModelSettings, RunSettings, journal_key, user_config
from reyn.config.load import merge_rules
from reyn.errors import (
    Finding,
    ProjectNotFound,
    SecretStoreUnavailable,
    SkillInvalid,
)
from reyn.journal import MemoryJournal
from reyn.kernel.runtime_types import SystemClock, TimedIds, Unattended
from reyn.kernel.world.budgets import Budgets
from reyn.kernel.world.environments import Environments, roots_of
from reyn.kernel.world.hooks import check_hooks, hook_name
from reyn.kernel.world.op_performer import OpPerformer
from reyn.lint import lint_agent, lint_skill
from reyn.lint.requests import malformed_requests
from reyn.models.roster import Roster
from reyn.ops import OpSetup, standard_ops
from reyn.ops.mcp import Connections, with_mcp_tools
from reyn.permissions import RuleError, parse_requests
from reyn.permissions.policy import policy_of
from reyn.permissions.trust import ProjectTrust, load_project
from reyn.runs.recorded import Runs
from reyn.runs.run_files import RunFiles
from reyn.skills import Library, load_skill, read_skill
from reyn.skills.agents import CHAT, Agents
from reyn.skills.agents import PREFIX as AGENT_PREFIX
from reyn.skills.inputs import check_supported
from reyn.workspace import PathInvalid, locate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Self

    from reyn.config import Config
    from reyn.journal import Journal
    from reyn.journal.sqlite import SqliteJournal
    from reyn.kernel.runtime_types import Clock, Ids, People
    from reyn.kernel.world.hooks import Hook
    from reyn.models import Model
    from reyn.ops import Op, OpTable
    from reyn.permissions import Policy
    from reyn.secrets import Scrubber, Secrets
    from reyn.skills import Skill
    from reyn.skills.cases import TrialReport

STATE = ".reyn"
"""The state directory, relative to the project."""
DATABASE = "journal.db"


@dataclass(frozen=True, kw_only=True)
class ProjectOptions:
    """What a program passes when it opens a project, beside settings; `OSRuntime.open` documents it."""

    model: Model | None = None
    journal: Journal | None = None
    clock: Clock | None = None
    ids: Ids | None = None
    people: People | None = None
    ops: Iterable[Op] = ()
    hooks: Sequence[Hook] = ()
    vouches: bool = False
    """Whether to trust the journal even if another user created it."""
    allow_shell: bool = False
    allow_unsafe_python: bool = False


class ProjectServices:
    """What the runs of a project use. A derived one shares journal, secrets and servers with its `base`.

    Attributes:
        root: The project's folder.
        config: The settings in effect.
        trust: The decision about the settings that need trust.
        library: The skills of the project.
        mcp: The connections to MCP servers.
        model: The model that the caller passed, used instead of the configured ones.
        hooks: Functions that are called before each model call.
        runs: The recorded runs.
    """

    def __init__(
        self,
        root: Path,
        config: Config,
        options: ProjectOptions | None = None,
        *,
        trust: ProjectTrust | None = None,
        base: Self | None = None,
    ) -> None:
        """Open a project whose configuration is loaded; see `open`.

        Args:
            root: The project's folder.
            config: Its settings.
            options: What the program passes beside the settings.
            trust: The decision about the settings that need trust.
            base: The project that this one is derived from.
        """
        options = options or ProjectOptions()
        self.root = root
        self.config = config
        self.trust: ProjectTrust = trust or ProjectTrust(str(root))
        self.library = Library(root)
        self.agents = Agents(root)
        self.model: Model | None = options.model
        self.clock: Clock = options.clock or SystemClock()
        self.ids: Ids = options.ids or TimedIds()
        self.people: People = options.people or Unattended()
        self.hooks: tuple[Hook, ...] = check_hooks(options.hooks)
        self.runs = Runs(self)
        self._options = options
        self._base = base
        self._project_journal: SqliteJournal | None = None
        if base is not None:
            self.mcp: Connections = base.mcp
            self._own_ops = base.ops.overlaid(*options.ops)
        else:
            setup = OpSetup(config, self.secret_for, self.library, self._findings_of, self.load, self._try_folder)
            self.mcp = Connections(root)
            self._own_ops = with_mcp_tools(standard_ops().with_ops(*options.ops).set_up(setup), self.mcp, setup, root)
        self.run_cases: Callable[[Path], TrialReport] | None = None
        """Runs the cases of the skill in a folder. The runtime of the project sets it."""
        self._has_learned = False
        self._has_learned_keys = False

    @classmethod
    def open(cls, root: str | Path, settings: dict[str, Any], options: ProjectOptions, *, trust: bool | None) -> Self:
        """Load the configuration of a folder and open it; `OSRuntime.open` documents the arguments."""
        folder = Path(root).resolve()
        if not folder.is_dir():
            raise ProjectNotFound(f"no folder `{root}`")
        loaded = load_project(folder, settings, trust=trust)
        return cls(folder, loaded.config, options, trust=loaded.trust)

    def derive(self, settings: dict[str, Any], permissions: Mapping[str, Any] | None, options: ProjectOptions) -> Self:
        """Return this project with other ops, model or settings; `OSRuntime.derive` documents the arguments."""
        rules = merge_rules(self._origin.config.permissions, dict(permissions or {}))
        derived = type(self)(
            self.root,
            msgspec.structs.replace(self.config, **settings, permissions=rules),
            replace(
                self._options,
                clock=self.clock,
                ids=self.ids,
                ops=options.ops,
                model=options.model or (None if "model" in settings else self.model),
                people=options.people or self.people,
                hooks=(*self.hooks, *check_hooks(options.hooks)),
            ),
            trust=self.trust,
            base=self._origin,
        )
        if derived.model is self.model:
            derived.roster = self.roster
        elif derived.model is None:
            derived.roster = self._origin.roster
        return derived

    @property
    def hook_names(self) -> tuple[str, ...]:
        """The names of the hooks, as runs record them."""
        return tuple(map(hook_name, self.hooks))

    @property
    def is_derived(self) -> bool:
        """Whether another project owns the journal, the models and the MCP servers."""
        return self._base is not None

    @property
    def _origin(self) -> Self:
        return self._base or self

    # -- the journal ----------------------------------------------------------------------------------

    @cached_property
    def journal(self) -> Journal:
        """The journal. It is opened on first use, so that a refused run creates no files."""
        if self._base is not None:
            return self._base.journal
        if self._options.journal is not None:
            return self._options.journal
        from reyn.journal.sqlite import SqliteJournal

        journal = self._project_journal = SqliteJournal(self.state_folder, owner=journal_key())
        if self._options.vouches:
            journal.adopt()
        return journal

    @property
    def state_folder(self) -> Path:
        """The folder of the journal and of the workspaces of runs."""
        return self.root / STATE

    @property
    def existing_journal(self) -> Journal:
        """The journal, or an empty one if the project has none yet: reading creates no files."""
        if (opened := vars(self).get("journal")) is not None:
            journal: Journal = opened
            return journal
        return self.journal if self.has_journal else MemoryJournal()

    @property
    def has_journal(self) -> bool:
        """Whether the journal exists already."""
        if self._base is not None:
            return self._base.has_journal
        if self._options.journal is not None or "journal" in vars(self):
            return True
        return (self.state_folder / DATABASE).exists()

    def check_owner(self) -> None:
        """Refuse to execute or undo runs of a journal that another user created."""
        if self._base is not None:
            self._base.check_owner()
        elif self.has_journal and self.journal is self._project_journal:
            self._project_journal.check_own()

    def resolve_links(self, path: str) -> str:
        """Return the path that a change of a file records for the path in an op's arguments."""
        try:
            return locate(path, roots_of(self.root, self.state_folder, "")).display_path
        except PathInvalid:
            return path

    # -- ops and skills -------------------------------------------------------------------------------

    @cached_property
    def ops(self) -> OpTable:
        """The ops: built in, of installed packages, of the project's `tools`, and those that the caller passed."""
        if self._base is not None or not self.config.tools:
            return self._own_ops
        return self._own_ops.with_tools(self.config.tools, self.root)

    @cached_property
    def policy(self) -> Policy:
        """The operator's rules and zones. The current configuration applies to all runs, also to older ones."""
        return policy_of(
            self.config,
            self.ops.vocabulary.permission_keys,
            self.root,
            self.trust,
            allow_shell=self._options.allow_shell,
            allow_unsafe_python=self._options.allow_unsafe_python,
        )

    @cached_property
    def op_performer(self) -> OpPerformer:
        """Performs the ops of runs, behind the permission gate."""
        environments = Environments(
            self.root,
            self.state_folder,
            self.policy,
            self.runs.compile_skill,
            self.config.sandbox,
            self.config.python,
            lambda handle: self.roster.secrets().resolve(handle),
        )
        return OpPerformer(self.ops, environments, self.journal.approvals, self.runs.compile_skill, self.all_secrets)

    @cached_property
    def files(self) -> RunFiles:
        """The files that runs changed, behind the permission gate."""
        return RunFiles(
            self.root,
            self.state_folder,
            self.journal,
            self.clock,
            self.config.sizes.file_bytes,
            self.policy,
            self.op_performer.environments.gate_of,
        )

    def load(self, skill: str) -> Skill:
        """Load and check a skill by name or path; `agent:NAME` is a conversation with an agent of one turn."""
        if skill.startswith(AGENT_PREFIX):
            return self.agent_skill(skill.removeprefix(AGENT_PREFIX), is_single_turn=True)
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

    def agent_skill(self, name: str, *, is_single_turn: bool = False) -> Skill:
        """Return the skill of a conversation with an agent.

        Args:
            name: The agent.
            is_single_turn: Whether it ends with the first reply.

        Raises:
            AgentNotFound: There is no such agent.
            SkillInvalid: Its file has errors.
        """
        findings = lint_agent(self.agents, name, self.skill_names, self.ops.vocabulary)
        if errors := [finding for finding in findings if finding.severity == "error"]:
            raise SkillInvalid(f"agent `{name}` has errors:", errors)
        loaded = self.agents.load(name).skill(self.load(CHAT), is_single_turn=is_single_turn)
        check_supported(loaded, self.ops.vocabulary)
        return loaded

    @property
    def skill_names(self) -> list[str]:
        """The names of the skills that runs of this project can use, without those that a program passes as values."""
        return [name for name, _, _ in self.library]

    def _findings_of(self, folder: Path) -> list[Finding]:
        classes = {*self.config.models, *self.trust.ignored_models}
        return lint_skill(folder, self.library, self.ops.vocabulary, self.config.python.sandbox, classes)

    def try_cases(self, skill: str) -> TrialReport:
        """Run the cases of a skill with their scripted answers, in memory and without effects outside.

        Args:
            skill: Name or path of the skill.

        Raises:
            SkillNotFound: There is no such skill.
        """
        return self._try_folder(self.library.find(skill))

    def _try_folder(self, folder: Path) -> TrialReport:
        if self._base is not None:
            return self._base._try_folder(folder)  # noqa: SLF001 - of this class
        assert self.run_cases is not None
        return self.run_cases(folder)

    # -- models ---------------------------------------------------------------------------------------

    @cached_property
    def roster(self) -> Roster:
        """The models."""
        return Roster(
            self.config.models,
            self.root,
            lambda: self.existing_journal,
            lambda: self.secrets,
            self.model,
            self.trust.may_bind,
            RunSettings.of(self.config).counter,
            self.config.endpoints,
            self.trust.ignored_models,
        )

    @cached_property
    def budgets(self) -> Budgets:
        """The budgets of the current configuration, and the prices of the models."""
        return Budgets(self.config.budgets, self.roster)

    # -- secrets --------------------------------------------------------------------------------------

    @cached_property
    def secrets(self) -> Secrets:
        """The secrets of the user, by name."""
        if self._base is not None:
            return self._base.secrets
        from reyn.secrets import EnvironmentStore, Secrets, open_secrets

        origins = user_config()
        try:
            return open_secrets(origins=origins)
        except SecretStoreUnavailable:  # there is no home directory
            return Secrets([], EnvironmentStore(os.environ), origins)

    def secret_for(self, handle: str, url: str) -> str:
        """Return the value of a secret in order to send it to a server."""
        from reyn.secrets import origin_of

        return self.secrets.resolve_for(handle, url, may_bind=self.trust.may_bind(handle, origin_of(url)))

    def learn_secrets(self) -> None:
        """Register the secrets outside the keyring, so that they are redacted in everything that is recorded."""
        if not self._has_learned:
            self._has_learned = True
            self.roster.secrets().learn()

    def all_secrets(self) -> Scrubber:
        """Return a scrubber that also knows the keys of the configured models, which may be in the keyring.

        They are read before the first op of this project, because a file that an op reads may contain them.
        """
        secrets = self.roster.secrets()
        if not self._has_learned_keys:
            self._has_learned_keys = True
            entries = self.config.models.values()
            secrets.learn(entry.key for entry in entries if isinstance(entry, ModelSettings) and entry.key)
        return secrets.scrubber

    def scrub(self, value: Any) -> Any:
        """Replace the values of secrets in a JSON value that reaches a run from outside."""
        self.learn_secrets()
        return self.roster.secrets().scrubber.scrub_value(value)

    # -- lifetime -------------------------------------------------------------------------------------

    async def close_connections(self) -> None:
        """Close MCP servers and models that were opened."""
        await self.mcp.aclose()
        if "roster" in vars(self):
            await self.roster.close()

    def close_journal(self) -> None:
        """Close the journal if it was opened."""
        if "journal" in vars(self):
            self.journal.close()
