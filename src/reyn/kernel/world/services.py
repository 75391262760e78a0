"""`Services`: what the runs of a project use, opened on first use, and the callbacks of one call.

The same value serves the kernel, which performs effects with it, `reyn.runs`, which reads recorded runs, and
`reyn.runtime`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.config import Config, ModelSettings, RunSettings
from reyn.config.load import merge_rules, overlay_config
from reyn.config.user import user_config
from reyn.config.values import PromptLimit
from reyn.context.budget_log import BudgetLog
from reyn.context.handoff import read_summaries
from reyn.context.histories import HISTORIES
from reyn.context.token_counting import check_installed
from reyn.errors import BlobMissing, Finding, SecretStoreUnavailable, SkillInvalid
from reyn.journal import Blob, Event, Journal, MemoryJournal, kinds
from reyn.journal.commits import SharedCommits
from reyn.journal.kinds import AGENT_PREFIX
from reyn.journal.opening import JournalPlace
from reyn.journal.port import STATE
from reyn.journal.state_folder import project_identity
from reyn.kernel.runtime_types import Clock, Ids, People, SystemClock, TimedIds, Unattended
from reyn.kernel.visit.run_context import uses_handoffs
from reyn.kernel.world.allowance import MessageCounts
from reyn.kernel.world.budgets import Budgets
from reyn.kernel.world.environments import Environments
from reyn.kernel.world.hooks import Hook, check_hooks, hook_name
from reyn.kernel.world.inbox import InboxPolling
from reyn.kernel.world.loading import CompiledSkills
from reyn.kernel.world.op_performer import OpPerformer
from reyn.kernel.world.shared_runs import SharedRuns
from reyn.kernel.world.watchers import OnDelta, Watchers
from reyn.lint import check_skill, lint_agent, lint_skill
from reyn.models.roster import Roster
from reyn.ops import Op, OpSetup, OpTable, standard_ops
from reyn.ops.mcp import Connections, with_mcp_tools
from reyn.permissions.gate import ProjectMissing
from reyn.permissions.policy import LivePolicy, written_places
from reyn.retrieval import Embedders, Indexes
from reyn.skills import Library, LoadResult, Skill, load_skill
from reyn.skills.agents import CHAT, Agents
from reyn.skills.inputs import check_supported

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from reyn.context import NormalizedMessageList
    from reyn.models import Model
    from reyn.permissions import Policy
    from reyn.permissions.trust import OpenProject, ProjectTrust
    from reyn.sandbox import StopSignal
    from reyn.secrets import Scrubber, Secrets
    from reyn.skills.cases import TrialReport
    from reyn.skills.resolve import MayRead
    from reyn.workspace import Roots

    Listener = Callable[[Event], None]
    OutputCheck = Callable[[Any], tuple[str, str]]
    """Returns the JSON path and the message of an error in a final output; both are empty if it is valid."""
    StoredHistory = tuple[tuple[kinds.HistoryPart, ...], tuple[Blob, ...]]


class Observers(NamedTuple):
    """The callbacks of one call."""

    listener: Listener | None = None
    on_delta: OnDelta | None = None
    check: OutputCheck | None = None


_MAX_HISTORY_CONTENT = 16_384


@dataclass(kw_only=True, eq=False)
class Services:
    """What the runs of a project use. Assign to a part that is opened on first use to replace it.

    Attributes:
        root: The project's folder.
        config: The settings in effect.
        trust: The decision about the settings that need trust.
        model: The model that the caller passed, used instead of the configured ones.
        clock: The clock.
        ids: The generator of run ids.
        people: Replies to questions.
        hooks: Functions that are called before each model call.
        added_ops: Ops besides the built-in and installed ones.
        adopts_journal: Whether to trust the journal even if another user created it.
        creates_journal: Whether to create a journal that is missing. An empty one in memory stands for it otherwise.
        allow_shell: Whether skills that have the permission `shell` may run shell commands.
        allow_unsafe_python: Whether python steps with `mode: unsafe` may run.
        project: The project's files. Their current rules apply; the other settings stay as they were read first.
        overrides: The settings that differ from those of `base`.
        added_rules: Permission rules besides those of the configuration.
        base: The services that these were derived from. Both share journal, secrets and servers.
        run_cases: Runs the cases of the skill in a folder. The runtime sets it.
        origin: The folders of the real project, if the root is a temporary one.
        has_project: Whether the root has the files of the project. A worker on another machine may not have them.
    """

    root: Path
    config: Config
    trust: ProjectTrust
    model: Model | None = None
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=TimedIds)
    people: People = field(default_factory=Unattended)
    hooks: tuple[Hook, ...] = ()
    added_ops: Sequence[Op] = ()
    adopts_journal: bool = False
    creates_journal: bool = True
    allow_shell: bool = False
    allow_unsafe_python: bool = False
    project: OpenProject | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    added_rules: dict[str, Any] = field(default_factory=dict)
    base: Services | None = None
    run_cases: Callable[[Path, MayRead | None, StopSignal | None], TrialReport] | None = None
    origin: Roots | None = None
    has_project: bool = True

    def __post_init__(self) -> None:
        base, root = self.base, self.root
        self.library: Library = base.library if base else Library(root, written_places(self.config))
        self.agents: Agents = base.agents if base else Agents(root)
        self.polling: InboxPolling = base.polling if base else InboxPolling()
        self.message_counts: MessageCounts = base.message_counts if base else MessageCounts()
        self.executing: set[asyncio.Task[Any]] = base.executing if base else set()
        """The tasks that execute runs."""
        self.shared_runs: SharedRuns = base.shared_runs if base else SharedRuns()
        self.watchers: Watchers = base.watchers if base else Watchers()
        self.mcp: Connections = base.mcp if base else Connections(root)
        self.budget_log = BudgetLog(root)
        self._history_content: set[str] = set()
        """Content of histories that the journal has had. Commits bring it again, so none of it may be missing."""
        self.compile_skill = CompiledSkills(lambda: self.existing_journal, lambda: self.ops.vocabulary)
        if base is not None:
            self.config = overlay_config(base.config, self.overrides, self.added_rules)
            self._own_ops = base.ops.overlaid(*self.added_ops)
        else:
            about_skills = self.findings_of, self.load, self.try_folder
            setup = OpSetup(self.config, self.secret_for, self.library, *about_skills, self.indexes)
            ops = standard_ops().with_ops(*self.added_ops).set_up(setup)
            self._own_ops = with_mcp_tools(ops, self.mcp, setup, root)

    def derive(
        self,
        settings: dict[str, Any],
        *,
        ops: Sequence[Op] = (),
        model: Model | None = None,
        permissions: Mapping[str, Any] | None = None,
        hooks: Sequence[Hook] = (),
        people: People | None = None,
    ) -> Services:
        """Return these services with other ops, model or settings; `OSRuntime.derive` documents the arguments."""
        base = self.base or self
        derived = replace(
            self,
            overrides={**self.overrides, **settings},
            added_rules=merge_rules(self.added_rules, dict(permissions or {})),
            model=model or (None if "model" in settings else self.model),
            people=people or self.people,
            hooks=(*self.hooks, *check_hooks(hooks)),
            added_ops=ops,
            base=base,
        )
        if derived.model is self.model:
            derived.roster = self.roster
        elif derived.model is None:
            derived.roster = base.roster.named
        return derived

    @property
    def hook_names(self) -> tuple[str, ...]:
        """The names of the hooks, as runs record them."""
        return tuple(map(hook_name, self.hooks))

    # -- the journal ----------------------------------------------------------------------------------

    @cached_property
    def journal(self) -> Journal:
        """The journal. It is opened on first use, so that a refused run creates no files."""
        return self.base.journal if self.base else self._journal_place.open(create=self.creates_journal)

    @property
    def _journal_place(self) -> JournalPlace:
        resolve = self.secrets.resolve if self.config.journal else None
        return JournalPlace(self.state_folder, self.config.journal, resolve, self.adopts_journal)

    @cached_property
    def commits(self) -> SharedCommits:
        """The commits of all runs that are executed here."""
        return self.base.commits if self.base is not None else SharedCommits(self.journal)

    @property
    def state_folder(self) -> Path:
        """The folder of the journal and of the workspaces of runs."""
        return self.root / STATE

    @property
    def existing_journal(self) -> Journal:
        """The journal, or an empty one if the project has none yet: reading creates no files."""
        return self.journal if "journal" in vars(self) or self.has_journal else MemoryJournal()

    @property
    def has_journal(self) -> bool:
        """Whether the journal exists already."""
        return "journal" in vars(self.base or self) or self._journal_place.has_journal

    @cached_property
    def identity(self) -> str:
        """What standing approvals of this project name."""
        return project_identity(self.root)

    def check_owner(self) -> None:
        """Refuse to execute or undo runs of a journal that another user created."""
        if self.base is not None:
            self.base.check_owner()
        elif self.has_journal:
            from reyn.journal.sqlite import SqliteJournal

            if isinstance(journal := self.journal, SqliteJournal):
                journal.check_own()

    # -- ops and skills -------------------------------------------------------------------------------

    @cached_property
    def ops(self) -> OpTable:
        """The ops: built in, of installed packages, of the project's `tools`, and those that the caller passed."""
        if self.base is not None or not self.config.tools:
            return self._own_ops
        return self._own_ops.with_tools(self.config.tools, self.root)

    @cached_property
    def read_policy(self) -> Callable[[], Policy]:
        """Returns the operator's rules and zones as they are now. They apply to all runs, also to older ones."""
        assert self.project is not None, "services without a project are given their rules"
        overlay = partial(overlay_config, settings=self.overrides, rules=self.added_rules)
        switches = {"allow_shell": self.allow_shell, "allow_unsafe_python": self.allow_unsafe_python}
        return LivePolicy(self.project, overlay, self.ops.vocabulary.permission_keys, self.root, **switches).read

    @cached_property
    def performer(self) -> OpPerformer:
        """Performs the ops of runs, behind the permission gate."""
        self.read_policy()  # an invalid rule stops a run before its first model call
        environments = Environments(
            self.root,
            self.state_folder,
            self.read_policy,
            self.compile_skill,
            self.config,
            self.trust.ignored_environments,
            lambda handle: self.roster.secrets().resolve(handle),
            lambda: self._key_scrubber,
            lambda: self.existing_journal,
            self.origin,
            has_project=self.has_project,
        )
        journal, scrubber = (lambda: self.existing_journal), (lambda: self._key_scrubber)
        return OpPerformer(self.ops, environments, journal, self.identity, self.compile_skill, scrubber)

    def load(self, skill: str, may_read: MayRead | None = None) -> Skill:
        """Load a skill by name or path; `agent:NAME` is a conversation with an agent of one turn.

        `may_read` is called with each file before it is read, and raises an error if it may not be read.

        Raises:
            SkillInvalid: `reyn lint` finds errors in it.
            SkillUnsupported: It uses a feature that this version cannot execute.
        """
        if not self.has_project:
            raise ProjectMissing
        if skill.startswith(AGENT_PREFIX):
            return self.agent_skill(skill.removeprefix(AGENT_PREFIX), is_single_turn=True)
        return load_skill(self.library.find(skill), self.ops.vocabulary, self.library.asking(may_read), self._check)

    def _check(self, loaded: LoadResult) -> list[Finding]:
        """Return every finding about a skill that is to run."""
        if loaded.skill is not None:
            check_supported(loaded.skill, self.ops.vocabulary)
        return check_skill(loaded, self.ops.vocabulary, self.config.python.sandbox)

    def agent_skill(self, name: str, *, is_single_turn: bool = False) -> Skill:
        """Return the skill of a conversation with an agent.

        Args:
            name: The agent.
            is_single_turn: Whether it ends with the first reply.

        Raises:
            AgentNotFound: There is no such agent.
            SkillInvalid: Its file has errors.
        """
        if not self.has_project:
            raise ProjectMissing
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

    def settings_of(self, started: kinds.RunStarted, content: Callable[[str], bytes] | None = None) -> RunSettings:
        """Return the settings of a run."""
        return self.compile_skill(started, content).settings

    def findings_of(self, folder: Path, may_read: MayRead | None = None) -> list[Finding]:
        """Return the findings of lint about the skill in a folder; `may_read` is called with each file."""
        classes = {*self.config.models, *self.trust.ignored_models}
        library = self.library.asking(may_read)
        return lint_skill(folder, library, self.ops.vocabulary, self.config.python.sandbox, classes)

    def try_folder(self, folder: Path, may_read: MayRead | None = None, stop: StopSignal | None = None) -> TrialReport:
        """Run the cases of the skill in a folder in memory and without effects outside, until `stop` is set."""
        run_cases = (self.base or self).run_cases
        assert run_cases is not None
        return run_cases(folder, may_read, stop)

    # -- new runs -------------------------------------------------------------------------------------

    @cached_property
    def _configured_settings(self) -> RunSettings:
        """The settings of a run as the configuration has them, without the properties of models."""
        return RunSettings.of(self.config)

    def run_settings(self) -> RunSettings:
        """Return the settings that a new run records."""
        if (settings := self._configured_settings).counter == "exact":
            check_installed()
        if not settings.classes:
            return settings
        forms = {name: self.roster.answer_form(name) for name in settings.classes.values()}
        known = {name: limit for name in forms if (limit := self.roster.prompt_limit(name)) != PromptLimit()}
        return msgspec.structs.replace(settings, answer_forms=forms, prompt_limits=known)

    def summaries(self, skill: Skill, settings: RunSettings) -> Blob | None:
        """Return the summaries of phases that other programs left in the project, if the skill receives handoffs."""
        return read_summaries(self.root, self.roster.scrub) if uses_handoffs(skill, settings) else None

    def store_history(self, history: NormalizedMessageList) -> StoredHistory:
        """Return the parts of a history, and the content that they refer to."""
        if not history:
            return (), ()
        stored = self._history_content

        def is_stored(name: str) -> bool:
            try:
                return name in stored or bool(self.journal.blob(name))
            except BlobMissing:
                return False

        parts, blobs = HISTORIES.store(history, is_stored, self.roster.scrub)
        if len(stored) > _MAX_HISTORY_CONTENT:
            stored.clear()
        stored.update(blob.hash for blob in blobs)
        return parts, blobs

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
            self._configured_settings.counter,
            self.config.endpoints,
            self.trust.ignored_models,
            self.trust.permits,
            self.config.model,
        )

    @cached_property
    def indexes(self) -> Indexes:
        """The search indexes."""
        return Indexes(lambda: self.existing_journal, Embedders(self.config.retrieval.embedder, lambda: self.roster))

    @cached_property
    def budgets(self) -> Budgets:
        """The budgets of the current configuration, and the prices of the models."""
        return Budgets(self.config.budgets, self.roster)

    # -- secrets --------------------------------------------------------------------------------------

    @cached_property
    def secrets(self) -> Secrets:
        """The secrets of the user, by name."""
        if self.base is not None:
            return self.base.secrets
        from reyn.secrets import EnvironmentStore, Secrets, open_secrets

        origins = user_config()
        try:
            return open_secrets(origins=origins)
        except SecretStoreUnavailable:  # there is no home directory
            return Secrets([], EnvironmentStore(os.environ), origins)

    def secret_for(self, handle: str, url: str) -> str:
        """Return the value of a secret in order to send it to a server."""
        return self.secrets.resolve_for(handle, url)

    @cached_property
    def scrubber(self) -> Scrubber:
        """Replaces the values of secrets outside the keyring in everything that is recorded."""
        secrets = self.roster.secrets()
        secrets.learn()
        return secrets.scrubber

    @cached_property
    def _key_scrubber(self) -> Scrubber:
        """Also knows the keys of the configured models, which may be in the keyring.

        They are read before the first op of this project, because a file that an op reads may contain them.
        """
        secrets, entries = self.roster.secrets(), self.config.models.values()
        secrets.learn(entry.key for entry in entries if isinstance(entry, ModelSettings) and entry.key)
        return secrets.scrubber

    # -- lifetime -------------------------------------------------------------------------------------

    async def close_connections(self) -> None:
        """Close MCP servers and models that were opened."""
        await self.mcp.aclose()
        if "roster" in vars(self):
            await self.roster.close()

    def close_journal(self) -> None:
        """Close the journal and the shared commits if they were opened."""
        for part in filter(vars(self).__contains__, ("commits", "journal")):
            getattr(self, part).close()
