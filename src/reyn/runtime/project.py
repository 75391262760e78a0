"""An open project: its configuration and ops, and what its runs use: journal, models, secrets, clock, ids, people.

Everything is opened on first use. `reyn.runtime.executor` executes runs with it.
"""

from __future__ import annotations

import os
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config import ModelSettings, RunSettings, journal_key, user_config
from reyn.config.load import merge_rules
from reyn.config.values import PromptLimit
from reyn.context.handoff import read_summaries
from reyn.context.histories import HISTORIES
from reyn.context.token_counting import check_installed
from reyn.documents import nearest
from reyn.errors import BlobMissing, Finding, ProjectNotFound, SecretStoreUnavailable, SkillInvalid
from reyn.journal import MemoryJournal
from reyn.kernel.runtime_types import SystemClock, TimedIds, Unattended
from reyn.kernel.visit.compiled_phase import uses_handoffs
from reyn.kernel.world.budgets import Budgets
from reyn.kernel.world.environments import roots_of
from reyn.kernel.world.hooks import check_hooks, hook_name
from reyn.kernel.world.loading import pin_settings
from reyn.lint import lint_agent, lint_skill
from reyn.lint.requests import malformed_requests
from reyn.models.roster import Roster
from reyn.ops import OpSetup, standard_ops
from reyn.ops.mcp import Connections, with_mcp_tools
from reyn.permissions import RuleError, parse_requests
from reyn.permissions.policy import policy_of
from reyn.permissions.trust import ProjectTrust, load_project
from reyn.runs.run_reader import RunReader
from reyn.skills import Library, check_pinned, load_skill, read_skill
from reyn.skills.agents import CHAT, Agents
from reyn.skills.agents import PREFIX as AGENT_PREFIX
from reyn.skills.inputs import check_supported
from reyn.skills.names import nfc
from reyn.skills.resolve import is_path
from reyn.workspace import PathInvalid, locate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from reyn.config import Config
    from reyn.context import NormalizedMessageList
    from reyn.journal import Blob, Journal, kinds
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
_MAX_CHECKED = 64
"""Skills as values that need not be checked again."""


class Project:
    """An open project. A derived project shares journal, secrets and servers with its `base`.

    Attributes:
        root: The project's folder.
        config: The settings in effect.
        trust: The decision about the settings that need trust.
        library: The skills of the project.
        mcp: The connections to MCP servers.
        model: The model that the caller passed, used instead of the configured ones.
        hooks: Functions that are called before each model call.
    """

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
        hooks: Sequence[Hook] = (),
        base: Project | None = None,
    ) -> None:
        """Open a project whose configuration is loaded; see `open`.

        Args:
            root: The project's folder.
            config: Its settings.
            journal: Where runs are recorded; by default `.reyn/journal.db`.
            model: The model to use instead of the configured ones.
            clock: The source of time.
            ids: The source of run ids.
            people: Replies to the questions of runs.
            ops: Op kinds to register besides the built-in and installed ones, or besides those of `base`.
            trust: The decision about the settings that need trust.
            vouches: Whether to trust the journal even if another user created it.
            allow_shell: Whether a rule can grant `shell`.
            allow_unsafe_python: Whether python steps with `mode: unsafe` may run.
            hooks: Functions that are called before each model call.
            base: The project that this one is derived from.
        """
        self.root = root
        self.config = config
        self.trust = trust or ProjectTrust(str(root))
        self.library = Library(root)
        self.agents = Agents(root)
        self.model = model
        self.clock: Clock = clock or SystemClock()
        self.ids: Ids = ids or TimedIds()
        self.people: People = people or Unattended()
        self.hooks = check_hooks(hooks)
        self._base = base
        self._vouches = vouches
        self._allow_shell = allow_shell
        self._allow_unsafe_python = allow_unsafe_python
        self._journal = journal
        self._project_journal: SqliteJournal | None = None
        if base is not None:
            self.mcp: Connections = base.mcp
            self._own_ops = base.ops.overlaid(*ops)
        else:
            setup = OpSetup(config, self.secret_for, self.library, self._findings_of, self.load, self.try_cases)
            self.mcp = Connections(root)
            self._own_ops = with_mcp_tools(standard_ops().with_ops(*ops).set_up(setup), self.mcp, setup, root)
        self._cached_reader: RunReader | None = None
        self._checked_skills: list[Skill] = []
        self._pinned_settings: tuple[RunSettings, Blob] | None = None
        self._trials: Any = None
        self._has_learned = False
        self._has_learned_keys = False

    @classmethod
    def open(
        cls,
        root: str | Path,
        settings: dict[str, Any],
        *,
        model: Model | str | None,
        journal: Journal | None,
        clock: Clock | None,
        ids: Ids | None,
        people: People | None,
        ops: Iterable[Op],
        trust: bool | None,
        allow_shell: bool,
        allow_unsafe_python: bool,
        hooks: Sequence[Hook] = (),
    ) -> Project:
        """Load the configuration of a folder and open it; `OSRuntime.open` documents the arguments."""
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
            hooks=hooks,
        )

    def derive(
        self,
        settings: dict[str, Any],
        *,
        ops: Iterable[Op],
        model: Model | str | None,
        permissions: Mapping[str, Any] | None,
        hooks: Sequence[Hook] = (),
        people: People | None = None,
    ) -> Project:
        """Return this project with other ops, model or settings; `OSRuntime.derive` documents the arguments."""
        if isinstance(model, str):
            settings["model"], model = model, None
        rules = merge_rules(self._origin.config.permissions, dict(permissions or {}))
        derived = Project(
            self.root,
            msgspec.structs.replace(self.config, **settings, permissions=rules),
            model=model or (None if "model" in settings else self.model),
            clock=self.clock,
            ids=self.ids,
            people=people or self.people,
            ops=ops,
            trust=self.trust,
            allow_shell=self._allow_shell,
            allow_unsafe_python=self._allow_unsafe_python,
            hooks=(*self.hooks, *check_hooks(hooks)),
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
    def _origin(self) -> Project:
        return self._base or self

    # -- the journal ----------------------------------------------------------------------------------

    @cached_property
    def journal(self) -> Journal:
        """The journal. It is opened on first use, so that a refused run creates no files."""
        if self._base is not None:
            return self._base.journal
        if self._journal is not None:
            return self._journal
        from reyn.journal.sqlite import SqliteJournal

        journal = self._project_journal = SqliteJournal(self.state_folder, owner=journal_key())
        if self._vouches:
            journal.adopt()
        return journal

    @property
    def state_folder(self) -> Path:
        """The folder of the journal and of the workspaces of runs."""
        return self.root / STATE

    @property
    def existing_journal(self) -> Journal:
        """The journal, or an empty one if the project has none yet: reading creates no files."""
        return self.journal if self.has_journal else MemoryJournal()

    @property
    def has_journal(self) -> bool:
        """Whether the journal exists already."""
        if self._base is not None:
            return self._base.has_journal
        return self._journal is not None or "journal" in vars(self) or (self.state_folder / DATABASE).exists()

    def check_owner(self) -> None:
        """Refuse to execute or undo runs of a journal that another user created."""
        if self._base is not None:
            self._base.check_owner()
        elif self.has_journal and self.journal is self._project_journal:
            self._project_journal.check_own()

    @property
    def reader(self) -> RunReader:
        """The recorded runs."""
        journal = vars(self).get("journal") or self.existing_journal
        if self._cached_reader is None or self._cached_reader.journal is not journal:
            self._cached_reader = RunReader(journal, lambda: self.ops, self._resolve_links)
        return self._cached_reader

    def _resolve_links(self, path: str) -> str:
        """Return the path that a change of a file records for the path in an op's arguments."""
        try:
            return locate(path, roots_of(self.root, self.state_folder, "")).display_path
        except PathInvalid:
            return path

    def store_history(self, history: NormalizedMessageList) -> tuple[tuple[kinds.HistoryPart, ...], tuple[Blob, ...]]:
        """Return the parts of a history, and the content that the journal does not have."""
        if not history.length:
            return (), ()

        def is_stored(name: str) -> bool:
            try:
                return bool(self.journal.blob(name))
            except BlobMissing:
                return False

        return HISTORIES.store(history, is_stored, self.roster.scrub)

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
            allow_shell=self._allow_shell,
            allow_unsafe_python=self._allow_unsafe_python,
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

    def check_skill(self, skill: Skill) -> Skill:
        """Check a skill that is a value like one that is loaded, and return it."""
        if skill not in self._checked_skills:
            check_pinned(skill)
            check_supported(skill, self.ops.vocabulary)
            self._checked_skills.append(skill)
            del self._checked_skills[:-_MAX_CHECKED]
        return skill

    def source_of(self, skill: str | Skill) -> str | None:
        """Return the path of a skill that was given as a path, relative to the project if it is inside."""
        if not isinstance(skill, str) or not is_path(skill):
            return None
        place = Path(skill).resolve()
        return str(place.relative_to(self.root)) if place.is_relative_to(self.root) else str(place)

    def summaries(self, skill: Skill, settings: RunSettings) -> Blob | None:
        """Return the summaries of phases that other programs left in the project, if the skill receives handoffs."""
        return read_summaries(self.root, self.roster.scrub) if uses_handoffs(skill, settings) else None

    def _findings_of(self, folder: Path) -> list[Finding]:
        classes = {*self.config.models, *self.trust.ignored_models}
        return lint_skill(folder, self.library, self.ops.vocabulary, self.config.python.sandbox, classes)

    def try_cases(self, folder: Path) -> TrialReport:
        """Run the cases of the skill in a folder with their scripted answers; nothing outside is changed."""
        if self._base is not None:
            return self._base.try_cases(folder)
        if self._trials is None:
            # `trials` is built on this module: it opens a project of its own for each case.
            self._trials = import_module("reyn.runtime.trials").Trials(self)
        report: TrialReport = self._trials.run(folder)
        return report

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

    @cached_property
    def _configured_settings(self) -> RunSettings:
        """The settings of a run as the configuration has them, without the properties of models."""
        return RunSettings.of(self.config)

    def run_settings(self) -> RunSettings:
        """Return the settings that a new run records."""
        settings = self._configured_settings
        if settings.counter == "exact":
            check_installed()
        if not settings.classes:
            return settings
        forms = {name: self.roster.answer_form(name) for name in settings.classes.values()}
        limits = {name: self.roster.prompt_limit(name) for name in settings.classes.values()}
        known = {name: limit for name, limit in limits.items() if limit != PromptLimit()}
        return msgspec.structs.replace(settings, answer_forms=forms, prompt_limits=known)

    def pinned_settings(self, settings: RunSettings) -> Blob:
        """Return the copy of settings that a run records. Most runs of a project have the same."""
        if self._pinned_settings is None or self._pinned_settings[0] != settings:
            self._pinned_settings = (settings, pin_settings(settings))
        return self._pinned_settings[1]

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

    def warnings(self) -> Iterator[str]:
        """Yield the warnings that apply to every run of this project."""
        if self.trust.warning:
            yield self.trust.warning
        if self.config.tools:
            yield from self.ops.problems
        yield from self.budget_warnings()
        for name, why in self.roster.secrets().unreadable.items():
            yield f"`{name}` cannot be read, so its values are not removed from what is recorded: {why}"

    def budget_warnings(self) -> Iterator[str]:
        """Yield a warning for each skill under `budgets.skill` whose name is probably misspelt."""
        if not self.config.budgets.skill:
            return
        known = [*self.skill_names, *(f"{AGENT_PREFIX}{name}" for name in self.agents)]
        for name in self.config.budgets.skill:
            # A name that resembles no other may be that of a function or of a skill that a program passes as a value.
            if nfc(name) not in known and (near := nearest(name, known)):
                yield f"`budgets.skill` has a budget for `{name}`, but there is no such skill; {near}"

    async def close_connections(self) -> None:
        """Close MCP servers and models that were opened."""
        await self.mcp.aclose()
        if "roster" in vars(self):
            await self.roster.close()

    def close_journal(self) -> None:
        """Close the journal if it was opened."""
        if "journal" in vars(self):
            self.journal.close()
