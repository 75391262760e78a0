"""`OSRuntime`: open a project, and start, resume and read its runs.

    async with OSRuntime.open(".") as rt:
        result = await rt.run("hello", {"text": "..."})

It connects the packages below it and implements no rules of its own.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from reyn.config import ModelSettings, RunSettings, journal_key, user_config
from reyn.config.load import merge_rules
from reyn.config.values import PromptLimit
from reyn.context import normalize
from reyn.context.bpe import check_installed
from reyn.errors import (
    ApprovalUnknown,
    BlobMissing,
    InputInvalid,
    McpServerFailed,
    McpServerUnknown,
    MutationInvalid,
    ProjectNotFound,
    RunBlocked,
    RunBusy,
    RunIdInvalid,
    RunIdTaken,
    RunNotResumable,
    SecretStoreUnavailable,
    SkillInvalid,
    UpgradeIncompatible,
)
from reyn.journal import ENDED, AbortTurn, Blob, Cancel, ChangeMemory, MemoryJournal, RaiseLimit, canonical, kinds
from reyn.journal.port import MAX_ROOT_RUN_ID, is_run_id
from reyn.kernel.budget_log import BudgetLog
from reyn.kernel.commits import SharedCommits
from reyn.kernel.compiled_skill import CompiledSkill, RunContext
from reyn.kernel.conversations import memory_error, memory_of
from reyn.kernel.driver import Driver
from reyn.kernel.histories import HISTORIES
from reyn.kernel.inputs import check_supported, missing_class_warnings, to_artifact
from reyn.kernel.limits import sub_run_settings
from reyn.kernel.live import InboxPolling, LiveWorld, inbox_events
from reyn.kernel.loading import Resumption, check_ops, load_head, load_run, new_tape, pin_ops, start_event
from reyn.kernel.op_performer import OpPerformer, requests_above, roots_of
from reyn.kernel.ports import SystemClock, TimedIds, Unattended
from reyn.kernel.run_state import fold
from reyn.kernel.sub_runs import SubRuns
from reyn.kernel.summaries import read_summaries
from reyn.kernel.versions import SUPPORTED_RULES
from reyn.lint import lint_skill
from reyn.lint.requests import malformed_requests
from reyn.models.roster import Roster
from reyn.ops import OpSetup, standard_ops
from reyn.ops.budget import OpFailed
from reyn.ops.configured import with_tools
from reyn.ops.mcp import Connections, read_definitions, with_mcp_tools, write_definitions
from reyn.permissions import RuleError, parse_requests
from reyn.permissions.explain import explain_requests, ungranted
from reyn.permissions.policy import policy_of
from reyn.permissions.trust import ProjectTrust, load_project
from reyn.runs.archive import ImportLimits, read_archive
from reyn.runs.family import descendants, root_run
from reyn.runs.fork import append_fork_event, find_fork_point, fork_event, fork_input
from reyn.runs.importing import check_archive, check_not_imported, import_runs
from reyn.runs.next_action import next_action
from reyn.runs.preview import preview_frame
from reyn.runs.prune import PruneReport, prune
from reyn.runs.questions import open_question, pending_message, post_reply, question_text, resume_answered
from reyn.runs.resume import check_fit, check_resume, has_ended
from reyn.runs.run_files import RunFiles
from reyn.runs.run_reader import RunReader
from reyn.runtime.permissions import Explainer
from reyn.runtime.stream import RunStream
from reyn.skills import Library, check_pinned, load_skill, pin, read_skill, unpin
from reyn.skills.resolve import is_path
from reyn.workspace import PathInvalid, locate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
    from datetime import timedelta
    from types import TracebackType
    from typing import Self

    from reyn.config import Config
    from reyn.context import ContextFrame, Experience, FrameSection, NormalizedMessageList
    from reyn.errors import Finding, NextAction
    from reyn.journal import Approval, Event, Journal, RunRow, Status
    from reyn.journal.sqlite import SqliteJournal
    from reyn.kernel.live import Listener, OnDelta, OutputCheck
    from reyn.kernel.loading import LoadedRun
    from reyn.kernel.nesting import RunScope
    from reyn.kernel.ports import Clock, Ids, People
    from reyn.kernel.run_state import RunState
    from reyn.kernel.runtime_types import ReplayReport, RunResult, VerifyReport
    from reyn.kernel.tape import Tape
    from reyn.models import Message, Model
    from reyn.models.listing import ModelStatus
    from reyn.ops import Op, OpTable
    from reyn.ops.mcp import ToolDefinitions
    from reyn.permissions import Policy
    from reyn.runs.diff import DiffReport
    from reyn.runs.fork import ForkPoint
    from reyn.runs.frames import VisitContext
    from reyn.runs.importing import ImportReport
    from reyn.runs.questions import PostedReply, Question
    from reyn.runs.undo import UndoReport
    from reyn.runtime.permissions import OpReport, OpVerdict, PermissionReport
    from reyn.secrets import Scrubber, Secrets
    from reyn.skills import Skill
    from reyn.vocabulary import Vocabulary

STATE = ".reyn"
"""The state directory, relative to the project."""
DATABASE = "journal.db"
_IMPORT_LIMITS = ImportLimits()
_MAX_CHECKED = 64
"""Skills as values that need not be checked again."""


class _Observers(NamedTuple):
    """The callbacks of one call."""

    listener: Listener | None
    on_delta: OnDelta | None
    check: OutputCheck | None = None


class OSRuntime:
    """One project and its runs. `SyncRuntime` has the same methods for synchronous code.

    A run is named by its id or by a unique prefix of it. Journal, model, clock, ids and people can be replaced; by
    default they come from the project and the system.
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
        base: Self | None = None,
        allow_shell: bool = False,
        allow_unsafe_python: bool = False,
    ) -> None:
        self.root = root
        self._base = base
        self._vouches = vouches
        self._allow_shell = allow_shell
        self._allow_unsafe_python = allow_unsafe_python
        self._project_journal: SqliteJournal | None = None
        self.config = config
        self.trust = trust or ProjectTrust(str(root))
        self.library = Library(root)
        if base is not None:
            self.mcp: Connections = base.mcp
            self._own_ops = base.ops.overlaid(*ops)
        else:
            setup = OpSetup(config, self._secret_for, self.library, self._findings_of, self.load)
            self.mcp = Connections(root)
            self._own_ops = with_mcp_tools(standard_ops().with_ops(*ops).set_up(setup), self.mcp, setup, root)
        self.people: People = people or Unattended()
        self._journal = journal
        self._model = model
        self._clock = clock or SystemClock()
        self._ids = ids or TimedIds()
        self._executing: set[asyncio.Task[Any]] = base._executing if base else set()  # noqa: SLF001 - of this class
        self._polling: InboxPolling = base._polling if base else InboxPolling()  # noqa: SLF001 - of this class
        self._cached_reader: RunReader | None = None
        self._checked_values: list[Skill] = []
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
        grants, secrets that are sent to a new origin. `trust` of the runtime lists the ones that were ignored.

        Args:
            root: The project's folder.
            model: A model, or the name of one; by default the one in `reyn.yaml`.
            journal: Where runs are recorded; by default `.reyn/journal.db`.
            clock: The source of time.
            ids: The source of run ids.
            people: Replies to the questions of runs; by default a run that asks stops and waits.
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

    def derive(
        self,
        *,
        ops: Iterable[Op] = (),
        model: Model | str | None = None,
        permissions: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Self:
        """Return a runtime of the same project with other ops, model or settings.

        It shares journal, people and commits with this one and is closed with it. Runs that it starts are runs of the
        project like any other. The ops of another derived runtime are not inherited.

        Args:
            ops: Ops to add; they replace ops of the same kind that are not built in.
            model: A model, or the name of one; by default that of this runtime.
            permissions: Rules to add to those of the configuration.
            **settings: Keys of the configuration to override.

        Raises:
            OpInvalid: An object is not an op, or its kind cannot be registered.
        """
        if isinstance(model, str):
            settings["model"], model = model, None
        rules = merge_rules(self._root_runtime.config.permissions, dict(permissions or {}))
        config = msgspec.structs.replace(self.config, **settings, permissions=rules)
        derived = type(self)(
            self.root,
            config,
            model=model or (None if "model" in settings else self._model),
            clock=self._clock,
            ids=self._ids,
            people=self.people,
            ops=ops,
            trust=self.trust,
            allow_shell=self._allow_shell,
            allow_unsafe_python=self._allow_unsafe_python,
            base=self._root_runtime,
        )
        if derived._model is None or derived._model is self._model:  # noqa: SLF001 - of this class
            own = derived._model is self._model  # noqa: SLF001 - of this class
            vars(derived)["_roster"] = self._roster if own else self._root_runtime._roster  # noqa: SLF001 - of this class
        return derived

    @property
    def _root_runtime(self) -> Self:
        """The runtime that owns journal, models and running runs: the one that this one was derived from."""
        return self._base or self

    @cached_property
    def ops(self) -> OpTable:
        """The ops: built in, of installed packages, of the project's `tools`, and those that the caller passed."""
        if self._base is not None or not self.config.tools:
            return self._own_ops
        return with_tools(self._own_ops, self.config.tools, self.root)

    @cached_property
    def journal(self) -> Journal:
        """The journal. It is opened on first use, so that a refused run creates no files."""
        if self._base is not None:
            return self._base.journal
        if self._journal is not None:
            return self._journal
        from reyn.journal.sqlite import SqliteJournal

        journal = self._project_journal = SqliteJournal(self.root / STATE, owner=journal_key())
        if self._vouches:
            journal.adopt()
        return journal

    def _check_owner(self) -> None:
        """Refuse to execute or undo runs of a journal that another user created."""
        if self._base is not None:
            self._base._check_owner()  # noqa: SLF001 - of this class
            return
        if self._has_journal and self.journal is self._project_journal:
            self._project_journal.check_own()

    @cached_property
    def _policy(self) -> Policy:
        """The operator's rules and zones. The current configuration applies to all runs, also to older ones."""
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
        if self._base is not None:
            return self._base._has_journal  # noqa: SLF001 - of this class
        return self._journal is not None or "journal" in vars(self) or (self.root / STATE / DATABASE).exists()

    @property
    def _reader(self) -> RunReader:
        journal = self._existing_journal
        if self._cached_reader is None or self._cached_reader.journal is not journal:
            self._cached_reader = RunReader(journal, lambda: self.ops, self._resolve_links)
        return self._cached_reader

    def _resolve_links(self, path: str) -> str:
        """Return the path that a change of a file records for the path in an op's arguments."""
        try:
            return locate(path, roots_of(self.root, self.root / STATE, "")).display_path
        except PathInvalid:
            return path

    @cached_property
    def _commits(self) -> SharedCommits:
        if self._base is not None:
            return self._base._commits  # noqa: SLF001 - of this class
        return SharedCommits(self.journal)

    # -- starting and resuming ------------------------------------------------------------------------

    async def run(
        self,
        skill: str | Skill,
        input: Any = None,
        *,
        run_id: str | None = None,
        listener: Listener | None = None,
        on_delta: OnDelta | None = None,
        check: OutputCheck | None = None,
        within: RunScope | None = None,
        history: Iterable[Message | dict[str, Any]] = (),
    ) -> RunResult:
        """Start a run and execute it until it ends or stops.

        If a run with this `run_id` exists, continue it if it was interrupted or a reply is stored for it; else return
        its result.

        Args:
            skill: Name or path of the skill, or the skill as a value.
            input: Text, the data of the entry phase's type, or an artifact with `type` and `data`.
            run_id: The id of the run; generated by default.
            listener: Called with every event once it is durable.
            on_delta: Called with every piece of a model's answer as it arrives.
            check: Checks a final output that fits its schema, if the skill says `checks_output`: returns the JSON path
                and the message of an error, both empty if it is valid. The model is asked again after an error.
            within: The op, of a run in this journal, whose code makes this call: the new run is a sub-run of its run.
                If the op is performed again after a crash, the same call continues the same sub-run.
            history: The messages that came before, if the entry phase is a conversation: messages, or dicts in the
                format of chat completion APIs. A transcript that `transcript` returned is stored once. A system message
                is left out: the phase has its own.

        Raises:
            MessageInvalid: A message of the history has an unknown role, a malformed field or invalid text.
            TranscriptInvalid: A tool call of the history does not have exactly one result.
        """
        observers, value = _Observers(listener, on_delta, check), self._scrub(input)
        name = _checked_id(self._ids.new() if run_id is None else run_id)

        async def again() -> RunResult:
            return await self._run_again(name, skill, value, observers)

        if run_id is not None and self.is_recorded(name):
            return await self._claim_and_execute(name, again, observers)
        loaded = self.load(skill) if isinstance(skill, str) else self._checked_value(skill)
        earlier = normalize(history)
        if earlier.length and not _is_conversation(loaded):
            raise InputInvalid(f"phase `{loaded.entry}` is not a conversation, so that a run cannot have a history")
        if within is not None:
            return await self._run_within(within, loaded, value, observers, earlier)
        settings = self._run_settings()
        artifact = Blob.of(canonical(to_artifact(value, loaded, strict=settings.strict)))
        model = self._roster.ready(self.config.model)

        async def start() -> RunResult:
            if self.journal.find(name) is not None:  # another process was faster
                return await again()
            first = start_event(
                name,
                loaded,
                settings,
                pin_ops(loaded, self.ops.vocabulary),
                artifact,
                model=model,
                answer_form=self._roster.answer_form(model),
                prompt_limit=self._roster.prompt_limit(model),
                source=self._source(skill),
                summaries=self._summaries(loaded, settings),
                history=self._store_history(earlier),
            )
            return await self._begin(first, model, observers)

        return await self._claim_and_execute(name, start, observers)

    def _store_history(self, history: NormalizedMessageList) -> tuple[tuple[kinds.HistoryPart, ...], tuple[Blob, ...]]:
        """Return the parts of a history, and the content that the journal does not have."""

        def is_stored(name: str) -> bool:
            try:
                return bool(self.journal.blob(name))
            except BlobMissing:
                return False

        return HISTORIES.store(history, is_stored, self._roster.scrub)

    def _summaries(self, skill: Skill, settings: RunSettings) -> Blob | None:
        """Return the summaries of phases that other programs left in the project, if the skill receives handoffs."""
        receives = RunContext(skill, settings, self.ops.vocabulary).uses_handoffs
        return read_summaries(self.root, self._roster.scrub) if receives else None

    async def _run_within(
        self, scope: RunScope, skill: Skill, value: Any, observers: _Observers, history: NormalizedMessageList
    ) -> RunResult:
        """Run a skill as a sub-run of the run whose op is being performed, within what that run's limits leave."""
        parent = scope.tape.state
        assert parent.started is not None
        above = self._reader.compile_skill(parent.started, scope.tape.content).settings
        settings = msgspec.structs.replace(
            sub_run_settings(parent, above),
            strict=self.config.strict,
            max_phase_retries=self.config.max_phase_retries,
        )
        artifact = to_artifact(value, skill, strict=settings.strict)
        model = self._roster.ready(self.config.model or parent.models.name)
        form = self._roster.answer_form(model)
        earlier = self._store_history(history)
        state = await self._sub_runs(model, observers).call(scope, skill, artifact, settings, model, form, earlier)
        return self._reader.to_result(state)

    def _checked_value(self, skill: Skill) -> Skill:
        """Check a skill that is a value like one that is loaded."""
        if skill not in self._checked_values:
            check_pinned(skill)
            check_supported(skill, self.ops.vocabulary)
            self._checked_values.append(skill)
            del self._checked_values[:-_MAX_CHECKED]
        return skill

    def _source(self, skill: str | Skill) -> str | None:
        """Return the path of a skill that was given as a path, relative to the project if it is inside."""
        if not isinstance(skill, str) or not is_path(skill):
            return None
        place = Path(skill).resolve()
        return str(place.relative_to(self.root)) if place.is_relative_to(self.root) else str(place)

    def _is_skill_of(self, started: kinds.RunStarted, skill: str | Skill) -> bool:
        """Whether a name or path names the skill of a run. The skill's files need not exist any more."""
        if not isinstance(skill, str):
            function = self._reader.compile_skill(started).skill.function
            return started.skill == skill.name and function == skill.function
        if not is_path(skill):
            return skill == started.skill
        if started.source:
            return self._source(skill) == started.source
        place = Path(skill).resolve()
        return (place.parent if place.name == "skill.md" else place).name == started.skill

    async def _begin(
        self, first: tuple[kinds.RunStarted, tuple[Blob, ...]], model: str, observers: _Observers
    ) -> RunResult:
        tape = new_tape(self.journal, *first, now=self._clock.now())
        return await self._execute(tape, self._world(model, None, observers))

    async def resume(
        self,
        run: str,
        *,
        retry: bool = False,
        raise_limits: Mapping[str, int | None] | None = None,
        model: str | None = None,
        upgrade: bool = False,
        listener: Listener | None = None,
        on_delta: OnDelta | None = None,
        check: OutputCheck | None = None,
    ) -> RunResult:
        """Continue a run that was interrupted or stopped, until it ends or stops again.

        Args:
            run: The run.
            retry: Retry what failed.
            raise_limits: New values of the limits that stopped the run; `None` removes a limit.
            model: Call this model from here on.
            upgrade: Continue with the current version of the skill, if it is compatible.
            listener: Called with every event once it is durable.
            on_delta: Called with every piece of a model's answer as it arrives.
            check: Checks the final output, as for `run`.

        Raises:
            RunNotResumable: The run cannot continue with these options; `action` of the error is the operation that
                continues it.
            RunBusy: Another process executes the run.
        """
        run_id, observers = self.find(run).run_id, _Observers(listener, on_delta, check)
        return await self._claim_and_execute(
            run_id,
            lambda: self._resume(run_id, observers, retry=retry, raised=raise_limits, model=model, upgrade=upgrade),
            observers,
        )

    async def _resume(
        self,
        run_id: str,
        observers: _Observers,
        *,
        retry: bool = False,
        raised: Mapping[str, int | None] | None = None,
        model: str | None = None,
        upgrade: bool = False,
    ) -> RunResult:
        """Continue a run whose claim is held."""
        check_not_imported(self.find(run_id), "resumed")
        loaded, raised = load_run(self.journal, run_id), raised or {}
        if has_ended(loaded.state, retry=retry, raised=raised):
            return self._reader.to_result(loaded.state)
        settings = self._reader.compile_skill(loaded.started).settings
        is_attended = not isinstance(self.people, Unattended) or self._is_expired(loaded.state.wait)
        check_resume(self.journal, loaded.state, settings, retry=retry, raised=raised, is_attended=is_attended)
        upgraded = self._upgraded(loaded) if upgrade else None
        self._roster.ready(model or loaded.state.models.name)
        for limit, value in raised.items():
            self.journal.post(run_id, RaiseLimit(limit, value))
        return await self._continue(loaded, observers, retry=retry, model=model, upgraded=upgraded)

    async def _claim_and_execute(
        self, run_id: str, attempt: Callable[[], Awaitable[RunResult]], observers: _Observers
    ) -> RunResult:
        """Hold the claim on a run during `attempt`; then continue the run as long as a message is pending for it.

        The claim is released before the inbox is read. `reyn.runs.questions` explains this protocol, by which other
        processes answer questions.
        """
        self._check_owner()
        result: RunResult | None = None
        refusal: RunNotResumable | None = None
        handled = 0
        with self._interruptible():
            while True:
                try:
                    with self.journal.claim(run_id):
                        result = await (attempt() if result is None else self._resume(run_id, observers))
                    refusal = None
                except RunNotResumable as error:
                    refusal = error
                except RunBusy:
                    if result is None:
                        raise
                    return _with_warning(result, "another process continues the run")
                pending = pending_message(self.journal, run_id)
                if pending <= handled:
                    break
                handled = pending
        if result is None:
            assert refusal is not None
            raise refusal
        if refusal is not None:  # another process took the message first
            result = self.result(run_id)
        if result.status == "cancelled":
            self._cancel_descendants(run_id, result.reason)
        return result

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._executing.add(task)
        try:
            yield
        finally:
            self._executing.discard(task)

    def interrupt(self) -> bool:
        """Interrupt the runs that this runtime executes; they can be resumed. Safe in signal handlers and threads.

        The interrupted calls raise `asyncio.CancelledError`.

        Returns:
            False if no run is being executed.
        """
        tasks = [task for task in list(self._executing) if not task.done()]
        for task in tasks:
            task.get_loop().call_soon_threadsafe(task.cancel)
        return bool(tasks)

    def _upgraded(self, loaded: LoadedRun) -> Skill:
        """Load the current version of a run's skill, and check that the run can continue with it."""
        recorded = self._reader.compile_skill(loaded.started)
        _check_of_files(recorded.skill)
        skill = self.load(loaded.started.source or loaded.started.skill)
        # A visit in progress keeps the op specifications that it was offered, so only the skill is compared. The copy
        # of a skill holds JSON, so a loaded skill is compared by its own copy.
        current = CompiledSkill(unpin(pin(skill).content), recorded.settings, recorded.vocabulary)
        check_fit(loaded.state, recorded, current, self.journal.blob)
        return skill

    def stream(
        self, skill: str | Skill, input: Any = None, *, run_id: str | None = None, on_delta: OnDelta | None = None
    ) -> RunStream:
        """Start a run and iterate over its events as they become durable; `.result` holds the result at the end."""
        return RunStream(lambda listener: self.run(skill, input, run_id=run_id, listener=listener, on_delta=on_delta))

    async def _run_again(self, run_id: str, skill: str | Skill, input: Any, observers: _Observers) -> RunResult:
        """Continue an existing run if it was interrupted, else return its result. Uses the run's own copies."""
        check_not_imported(self.find(run_id), "continued")
        loaded = load_run(self.journal, run_id)
        if not self._is_skill_of(loaded.started, skill):
            name = skill if isinstance(skill, str) else skill.name
            raise RunIdTaken(f"run `{run_id}` is a run of skill `{loaded.started.skill}`, not of `{name}`")
        compiled = self._reader.compile_skill(loaded.started)
        artifact = Blob.of(canonical(to_artifact(input, compiled.skill, strict=compiled.settings.strict)))
        if loaded.started.input.hash != artifact.hash:
            raise RunIdTaken(f"run `{run_id}` was started with a different input")
        if loaded.state.status != "running":
            return self._reader.to_result(loaded.state)
        return await self._continue(loaded, observers)

    async def _continue(
        self,
        loaded: LoadedRun,
        observers: _Observers,
        *,
        retry: bool = False,
        model: str | None = None,
        upgraded: Skill | None = None,
    ) -> RunResult:
        check_ops(loaded.state.run_id, upgraded or self._reader.compile_skill(loaded.started).skill, self.ops)
        opened = self._roster.ready(model or loaded.state.models.name)
        resumption = Resumption(
            self._ids.new(),
            retry=retry,
            skill=upgraded.name if upgraded else None,
            pinned=pin(upgraded) if upgraded else None,
            ops=pin_ops(upgraded, self.ops.vocabulary) if upgraded else None,
            is_model_override=model is not None,
        )
        return await self._execute(loaded.tape, self._world(opened, resumption, observers))

    @cached_property
    def _op_performer(self) -> OpPerformer:
        return OpPerformer(
            self.root,
            self.root / STATE,
            self.ops,
            self._policy,
            self.journal.approvals,
            self._reader.compile_skill,
            self._all_secrets,
            self.config.sandbox,
            lambda handle: self._roster.secrets().resolve(handle),
        )

    def _is_expired(self, wait: kinds.Wait | None) -> bool:
        return wait is not None and wait.is_expired(self._clock.now())

    def _world(self, model: str, resumption: Resumption | None, observers: _Observers) -> LiveWorld:
        """Return the world of a run. Each of its sub-runs gets its own, with its own resumption."""

        # The check is for the output of this run, not for that of the skills that it runs.
        sub_runs = self._sub_runs(model, observers._replace(check=None))
        self._learn_secrets()
        return LiveWorld(
            self.journal,
            self._commits,
            model,
            self._roster,
            self._clock,
            self._op_performer,
            sub_runs,
            self.people,
            self._polling,
            BudgetLog(self.root),
            resumption=resumption,
            listener=observers.listener,
            on_delta=observers.on_delta,
            check=observers.check,
            owner=self,
        )

    def _sub_runs(self, model: str, observers: _Observers) -> SubRuns:
        async def execute_run(tape: Tape, resumption: Resumption | None) -> RunState:
            try:
                return await Driver(tape, self._compiler_for(tape), self._world(model, resumption, observers)).drive()
            finally:
                self._polling.notify(tape.run_id)
                if (started := tape.state.started) is not None and started.parent is not None:
                    self._polling.notify(started.parent.run)  # the message may be for the parent as well

        return SubRuns(
            self.journal, self._clock, self._ids, self.ops, self.load, self._reader.compile_skill, execute_run
        )

    async def _execute(self, tape: Tape, world: LiveWorld) -> RunResult:
        try:
            async with self._commits.active_run():
                state = await Driver(tape, self._compiler_for(tape), world).drive()
        finally:
            self._polling.notify(tape.run_id)
        assert state.started is not None
        compiled = self._reader.compile_skill(state.started, tape.content)
        warnings = (
            *self._own_warnings(),
            *self._ungranted(state.started, tape.content),
            *missing_class_warnings(compiled.skill, compiled.settings),
            *world.warnings,
        )
        return self._reader.to_result(state, warnings)

    def _own_warnings(self) -> Iterator[str]:
        """Yield the warnings that apply to every run of this runtime."""
        if self.trust.warning:
            yield self.trust.warning
        if self.config.tools:
            yield from self.ops.problems
        for name, why in self._roster.secrets().unreadable.items():
            yield f"`{name}` cannot be read, so its values are not removed from what is recorded: {why}"

    # -- messages to a run ----------------------------------------------------------------------------

    def answer(self, run: str, wait: str, value: Any, *, is_text: bool = False, by: str = "") -> PostedReply:
        """Post a reply to an open question of a run or of its descendants.

        If a process executes the run, it continues with the reply. `resume_answered` resumes the run otherwise.

        Args:
            run: The run that asks, or an ancestor of it.
            wait: The id of the question.
            value: The reply, a JSON value.
            is_text: Whether `value` is text as a user typed it: taken as text if the question takes text, else as JSON.
            by: The name of the user who replies; it is recorded.

        Raises:
            QuestionUnknown: The question is not open, has a reply already, or has expired.
            ReplyInvalid: The reply does not match the schema of the question.
        """
        row = self.find(run)
        check_not_imported(row, "answered")
        value = self._scrub(value)
        posted = post_reply(self.journal, row, wait, value, now=self._clock.now(), is_text=is_text, by=by)
        self._polling.notify(posted.run_id)
        return posted

    async def resume_answered(
        self, answer: PostedReply, *, listener: Listener | None = None, on_delta: OnDelta | None = None
    ) -> RunResult | None:
        """Resume the root run of a posted reply, unless another process executes it.

        Returns:
            The result of the root run; `None` if another process continues it.
        """
        return await resume_answered(
            self.journal, answer, lambda root: self.resume(root, listener=listener, on_delta=on_delta)
        )

    def cancel(self, run: str, reason: str = "") -> None:
        """End a run and its descendants. A process that executes the run stops before the run's next effect."""
        row = self.find(run)
        check_not_imported(row, "cancelled: it is never executed here")
        if row.status in ENDED:
            raise RunNotResumable(f"run `{row.run_id}` is already {row.status}", hint="There is nothing to cancel.")
        family = [run.run_id for run in (row, *descendants(self.journal, row.run_id)) if run.status not in ENDED]
        for name in family:
            self.journal.post(name, Cancel(reason))
            self._polling.notify(name)  # a driver in this process reads it before its next effect
        for name in family:
            self._take_messages(name)

    def remember(self, run: str, text: str) -> None:
        """Let a conversation remember a text, beyond any compaction. The next turn sees it.

        Raises:
            MutationInvalid: The text is blank, or the run has no conversation.
        """
        self._change_memory(run, "remember", text)

    def forget(self, run: str, experience: str) -> None:
        """Let a conversation forget an experience, by its id.

        Raises:
            MutationInvalid: The conversation does not remember it.
        """
        self._change_memory(run, "forget", experience)

    def experiences(self, run: str) -> tuple[Experience, ...]:
        """Return what the conversation of a run remembers, the oldest first."""
        state = self._reader.state(run)
        return memory_of(state, state.phase).experiences

    def _change_memory(self, run: str, action: Literal["remember", "forget"], text: str) -> None:
        row = self.find(run)
        check_not_imported(row, "changed: it is never executed here")
        if row.status in ENDED:
            raise RunNotResumable(
                f"run `{row.run_id}` is already {row.status}", hint="Its memory is not used any more."
            )
        state, value = self._reader.state(row.run_id), self._scrub(text)
        if state.phase not in state.conversations:
            raise MutationInvalid(f"phase `{state.phase}` of run `{row.run_id}` has no conversation yet")
        if error := memory_error(memory_of(state, state.phase), action, value):
            raise MutationInvalid(error)
        self.journal.post(row.run_id, ChangeMemory(action, value))
        self._polling.notify(row.run_id)
        self._take_messages(row.run_id)

    def abort_turn(self, run: str, reason: str = "", *, partial: str = "") -> None:
        """Abort the turn of a conversation that is in progress; the conversation itself can go on.

        What the turn has done stays in the transcript: the user's message, completed tool calls, and what had arrived
        of the answer. Tool calls without a result are recorded as cancelled. A request that arrives after the turn has
        ended is refused.

        Args:
            run: The conversation.
            reason: Why, for the record.
            partial: The text of the model's answer so far, as the caller received it.
        """
        row = self.find(run)
        check_not_imported(row, "aborted: it is never executed here")
        if row.status in ENDED:
            raise RunNotResumable(f"run `{row.run_id}` is already {row.status}", hint="There is nothing to abort.")
        self.journal.post(row.run_id, AbortTurn(reason, self._scrub(partial)))
        self._polling.notify(row.run_id)
        for child in descendants(self.journal, row.run_id):
            if child.status not in ENDED:
                self.journal.post(child.run_id, Cancel(reason))
                self._polling.notify(child.run_id)

    def _cancel_descendants(self, run_id: str, reason: str) -> None:
        """Cancel sub-runs that started or stopped before the cancellation of their root run was recorded."""
        for row in descendants(self.journal, run_id):
            if row.status in ENDED:
                continue
            if not any(
                isinstance(message.payload, Cancel) for message in self.journal.drain(row.run_id, row.messages_taken)
            ):
                self.journal.post(row.run_id, Cancel(reason))
            self._take_messages(row.run_id)

    def _take_messages(self, run_id: str) -> None:
        """Record the messages to a run, unless another process executes the run and records them itself."""
        with suppress(RunBusy, RunBlocked), self.journal.claim(run_id):
            state, tape = load_head(self.journal, run_id)
            now, messages = self._clock.now(), self.journal.drain(run_id, state.messages_taken)
            for body, blobs in inbox_events(messages, state, now):
                tape.record(body, now, *blobs)
            tape.flush_now(self.journal)

    # -- new runs from recorded ones ------------------------------------------------------------------

    async def fork(
        self,
        run: str,
        *,
        at: int | None = None,
        model: str | None = None,
        input: Any = None,
        skill: str | None = None,
        run_id: str | None = None,
        listener: Listener | None = None,
        on_delta: OnDelta | None = None,
    ) -> RunResult:
        """Start a run that continues from an event of another run, and execute it. The other run stays as it is.

        An imported run is continued between two visits, with the settings and the model of this project.

        Args:
            run: The run to fork.
            at: The sequence number of the event; by default the last one from which a run can continue.
            model: Call another model from there on.
            input: Replace the input of the next phase.
            skill: Continue with another skill, or with the current version of this one.
            run_id: The id of the new run; generated by default.
            listener: Called with every event once it is durable.
            on_delta: Called with every piece of a model's answer as it arrives.
        """
        row, name, observers = self.find(run), self._new_id(run_id), _Observers(listener, on_delta)
        changes = input is not None or skill is not None
        point = find_fork_point(row.run_id, self.journal.read(row.run_id), at, between_visits=changes)
        assert point.state.started is not None
        # A visit under other rules cannot be executed again. Nothing that an imported run intended is performed, not
        # even its open request to a model.
        if point.state.started.rules not in SUPPORTED_RULES or self._is_imported(point):
            point = find_fork_point(row.run_id, self.journal.read(row.run_id), at, between_visits=True)
        if self._is_imported(point):
            model = model or self.config.model
        forked, blobs = self._forked(name, row.run_id, point, model, self._scrub(input), skill)
        opened = self._roster.ready(model or point.state.models.name)
        if forked.model is not None:
            form, limit = self._roster.answer_form(opened), self._roster.prompt_limit(opened)
            forked = msgspec.structs.replace(forked, model=opened, answer_form=form, prompt_limit=limit)

        async def start() -> RunResult:
            self._files.recreate_workspace(name, row.run_id, point.event)
            event = append_fork_event(self.journal, name, point.event, forked, blobs, self._clock.now())
            world = self._world(opened, None, observers)
            world.notify_listener(event)
            return await self._execute(load_run(self.journal, name).tape, world)

        return await self._claim_and_execute(name, start, observers)

    def _forked(
        self, name: str, origin: str, point: ForkPoint, model: str | None, input: Any, skill: str | None
    ) -> tuple[kinds.RunForked, tuple[Blob, ...]]:
        """Return the first event of a fork, after validating a new input or a new skill.

        A fork of an imported run has the settings and op specifications of this project.
        """
        assert point.state.started is not None
        loaded = self.load(skill) if skill is not None else None
        recorded = self._reader.compile_skill(point.state.started)
        is_imported = self._is_imported(point)
        settings = self._run_settings() if is_imported else recorded.settings
        current = CompiledSkill(loaded or recorded.skill, settings, self.ops.vocabulary)
        if is_imported:
            _check_imported(current.skill, self.ops.vocabulary)
        is_new = loaded is not None or is_imported
        artifact = fork_input(point, current, input, self.journal.blob, is_new_skill=is_new)
        check_ops(name, current.skill, self.ops)
        is_new = is_new or point.state.started.ops is None
        specs = pin_ops(current.skill, self.ops.vocabulary) if is_new else None
        pinned = Blob.of(canonical(settings)) if is_imported else None
        return fork_event(name, origin, point, model, artifact, loaded, specs, pinned)

    def _is_imported(self, point: ForkPoint) -> bool:
        """Whether the event that a fork continues from was imported; a fork of an imported run inherits such events."""
        row = self.journal.find(point.event.run_id)
        return row is not None and bool(row.imported)

    async def rerun(
        self,
        run: str,
        *,
        model: str | None = None,
        upgrade: bool = False,
        run_id: str | None = None,
        listener: Listener | None = None,
        on_delta: OnDelta | None = None,
    ) -> RunResult:
        """Start a run with the input, settings and skill of another one, and execute it.

        An imported run is repeated with the settings and the model of this project.

        Args:
            run: The run to repeat.
            model: Call another model.
            upgrade: Use the current version of the skill instead of the run's own copy.
            run_id: The id of the new run; generated by default.
            listener: Called with every event once it is durable.
            on_delta: Called with every piece of a model's answer as it arrives.
        """
        row, name, observers = self.find(run), self._new_id(run_id), _Observers(listener, on_delta)
        state = self.state(row.run_id)
        assert state.started is not None
        started, recorded = state.started, self._reader.compile_skill(state.started)
        is_imported = bool(row.imported) or started.imported
        source = None if is_imported else started.source
        if upgrade:
            _check_of_files(recorded.skill)
        skill = self.load(source or started.skill) if upgrade else recorded.skill
        settings = self._run_settings() if is_imported else recorded.settings
        artifact = Blob(started.input.hash, self.journal.blob(started.input.hash))
        if is_imported:
            _check_imported(skill, self.ops.vocabulary)
        if upgrade or is_imported:
            to_artifact(msgspec.json.decode(artifact.content), skill, strict=settings.strict)
        check_ops(name, skill, self.ops)
        opened = self._roster.ready(model or (self.config.model if is_imported else started.model))
        summaries = Blob(started.summaries, self.journal.blob(started.summaries)) if started.summaries else None

        async def start() -> RunResult:
            first, blobs = start_event(
                name,
                skill,
                settings,
                pin_ops(skill, self.ops.vocabulary),
                artifact,
                model=opened,
                answer_form=self._roster.answer_form(opened),
                prompt_limit=self._roster.prompt_limit(opened),
                rerun_of=started.run_id,
                source=source,
                imported=is_imported,
                requests=started.requests,
                summaries=summaries,
                history=(started.history if _is_conversation(skill) else (), ()),
            )
            return await self._begin((first, blobs), opened, observers)

        return await self._claim_and_execute(name, start, observers)

    def _new_id(self, run_id: str | None) -> str:
        name = _checked_id(self._ids.new() if run_id is None else run_id)
        if self.is_recorded(name):
            raise RunIdTaken(f"run `{name}` exists already", hint="Use another run id.")
        return name

    def undo(self, run: str, *, dry_run: bool = False) -> UndoReport:
        """Restore the files that a run and its descendants changed, newest change first.

        Leaves a file as it is if another program changed it since, or if the run may not write it now.

        Raises:
            RunImported: The run was imported.
        """
        check_not_imported(self.find(run), "undone: its changes were made elsewhere")
        if not dry_run:
            self._check_owner()
        family = self._reader.family(run)
        return self._files.undo(family, dry_run=dry_run)

    def changed_files(self, run: str) -> dict[str, str]:
        """Return the files that a run and its descendants changed: `new`, `changed` or `deleted` by path."""
        family = self._reader.family(run)
        return self._files.changed_files(family)

    def prune(
        self, *, older_than: timedelta, statuses: Collection[Status] = ENDED, dry_run: bool = False
    ) -> PruneReport:
        """Delete recorded runs with their sub-runs, workspace folders and unshared content.

        A run stays if a fork that is not deleted continues from it, if an unfinished run uses it as its model
        (`recorded:RUN`), or if a process executes it.

        Args:
            older_than: The minimum time since the last event of a run or of its sub-runs.
            statuses: The statuses of the runs to delete; by default those that have ended.
            dry_run: Report only.
        """
        if not self._has_journal:  # perhaps it was moved: then no workspace folder is without a run
            return PruneReport(is_dry=dry_run)
        if not dry_run:
            self._check_owner()
        return prune(
            self.journal,
            self.root / STATE / "workspace",
            now=self._clock.now(),
            older_than=older_than,
            statuses=statuses,
            dry_run=dry_run,
        )

    @cached_property
    def _files(self) -> RunFiles:
        return RunFiles(
            self.root,
            self.root / STATE,
            self.journal,
            self._clock,
            self.config.sizes.file_bytes,
            self._policy,
            self._op_performer.gate_of,
        )

    def import_(
        self, lines: Iterable[bytes], *, origin: str = "an archive", limits: ImportLimits = _IMPORT_LIMITS
    ) -> ImportReport:
        """Import exported runs, all of them or none, and recreate the files of their workspaces.

        Imported runs can be read, verified and replayed. `fork` and `rerun` continue them; nothing else does.

        Args:
            lines: The lines of an archive, or a binary file.
            origin: Where the archive comes from; `RunRow.imported` shows it.
            limits: The largest archive to read.

        Raises:
            ArchiveInvalid: The archive, or one of its runs, is invalid. Nothing was stored.
            ArchiveTooLarge: The archive exceeds the limits. Nothing was stored.
            RunIdTaken: A different run with the same id exists. Nothing was stored.
        """
        self._check_owner()
        checked = check_archive(read_archive(lines, limits), limits)
        report = import_runs(self.journal, checked, origin)
        for run in (*report.imported, *(run for run in report.known if self.find(run).imported)):
            events = list(self.journal.read(run))
            if fold(events).workspace == run:
                self._files.recreate_workspace(run, run, events[-1])
        return report

    # -- reading runs ---------------------------------------------------------------------------------

    def is_recorded(self, run_id: str) -> bool:
        """Whether a run of exactly this id exists."""
        return self._existing_journal.find(run_id) is not None

    def find(self, run: str) -> RunRow:
        """Return a run by its id, or by a unique prefix of it.

        Raises:
            RunNotFound: There is no such run, or the prefix is ambiguous.
        """
        return self._reader.find(run)

    def runs(self) -> list[RunRow]:
        """Return all runs, newest first."""
        return self._reader.runs()

    def root_run(self, row: RunRow) -> RunRow:
        """Return the root run of a sub-run, or the run itself."""
        return root_run(self._existing_journal, row)

    def display_status(self, row: RunRow) -> str:
        """Return the status of a run for users, including `running (interrupted)` and `blocked`."""
        return self._reader.display_status(row)

    def next_action(self, row: RunRow) -> NextAction | None:
        """Return the operation that continues a run; `None` if there is none, or if a live process executes the run."""
        return next_action(self._existing_journal, row)

    def open_question(self, row: RunRow) -> Question | None:
        """Return the open question of a run or of one of its descendants."""
        return open_question(self._existing_journal, row)

    def question_text(self, question: Question) -> str:
        """Return the text of a question; unlike its `message`, with the whole preview of what is to be approved."""
        return question_text(self._existing_journal, question)

    def events(self, run: str, after: int = 0) -> Iterator[Event]:
        """Yield the events of a run after a sequence number."""
        return self._reader.events(run, after)

    def content(self, hash: str) -> bytes:
        """Return content that an event refers to, by its hash."""
        return self._existing_journal.blob(hash)

    def state(self, run: str) -> RunState:
        """Return the state of a run: the fold of all its events."""
        return self._reader.state(run)

    def result(self, run: str) -> RunResult:
        """Return the result of a run as recorded so far."""
        return self._reader.result(run)

    def frame_at(self, run: str, seq: int | None = None) -> list[tuple[str, str]]:
        """Return role and text of the messages of a frame, by default the last one, and the model's answer."""
        return self._reader.frame_at(run, seq)

    def transcript(self, run: str, phase: str | None = None) -> NormalizedMessageList:
        """Return the messages of a conversation with their texts, those of its history included.

        Args:
            run: The run.
            phase: The phase that is the conversation; by default the phase of the run's last visit.

        Raises:
            RunNotFound: The run has no conversation in this phase.
        """
        return self._reader.transcript(run, phase)

    async def next_frame(self, run: str, answer: Any = None) -> list[tuple[str, str]]:
        """Return role and text of the messages that a stopped run would send next. Records nothing.

        Args:
            run: The run.
            answer: The answer to its open question; in a conversation, what the user says next.

        Raises:
            RunNotResumable: The run does not call its model next.
        """
        return await self._reader.next_frame(run, answer)

    def context_frame(self, run: str, seq: int | None = None) -> ContextFrame:
        """Return the frame at an event of a run, or the last one before it, as a value; by default the last frame."""
        return self._reader.context_frame(run, seq)

    def frame_sections(self, run: str, seq: int | None = None) -> tuple[FrameSection, ...]:
        """Return the estimated tokens of each section of a frame, by default the last, before and after truncation."""
        return self._reader.frame_sections(run, seq)

    def visit_contexts(self, run: str) -> Iterator[VisitContext]:
        """Yield the tokens of each visit's prompt by section, and the tokens that a prompt cache served."""
        return self._reader.visit_contexts(run)

    async def replay(self, run: str) -> ReplayReport:
        """Derive a run again from its recorded inputs and compare every event."""
        return await self._reader.replay(run)

    def verify(self, run: str, *, head: str | None = None) -> VerifyReport:
        """Check the hashes of all events and contents of a run, and of the sub-runs whose results it took.

        Args:
            run: The run.
            head: The hash of an event of the run, noted outside the journal. A user who can write the journal can
                compute new hashes for a changed history, but cannot make one of them equal to this hash.

        Raises:
            ChainBroken: An event is wrong or missing.
            BlobMissing: Content is missing or damaged.
            HeadMismatch: No event has the hash `head`.
        """
        return self._reader.verify(run, head)

    def diff(self, a: str, b: str) -> DiffReport:
        """Return the first decision in which two runs differ, and its cause."""
        return self._reader.diff(a, b)

    def export(self, run: str) -> Iterator[bytes]:
        """Yield the lines of an archive of a run, its origins and its sub-runs, for `import_`."""
        return self._reader.export(run)

    # -- permissions ----------------------------------------------------------------------------------

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

    def permission_warnings(self, run: str) -> tuple[str, ...]:
        """Return a message for each request of a run and of its pinned sub-skills that no rule grants."""
        started = self.state(run).started
        assert started is not None
        return self._ungranted(started, self._existing_journal.blob)

    def _ungranted(self, started: kinds.RunStarted, content: Callable[[str], bytes]) -> tuple[str, ...]:
        skill = self._reader.compile_skill(started, content).skill
        above = requests_above(started, content)
        found = ungranted(skill.name, explain_requests(skill.name, skill.permissions, self._policy, above))
        for one in skill.skills.values():
            outer = (skill.permissions, *above)
            found += ungranted(one.name, explain_requests(one.name, one.permissions, self._policy, outer))
        return tuple(found)

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

    # -- skills and models ----------------------------------------------------------------------------

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
        form, limit = self._roster.answer_form(self.config.model), self._roster.prompt_limit(self.config.model)
        loaded, settings = self.load(skill), self._run_settings()
        return preview_frame(loaded, input, phase, settings, self.ops, form, self._summaries(loaded, settings), limit)

    def _run_settings(self) -> RunSettings:
        settings = RunSettings.of(self.config)
        forms = {name: self._roster.answer_form(name) for name in settings.classes.values()}
        limits = {name: self._roster.prompt_limit(name) for name in settings.classes.values()}
        known = {name: limit for name, limit in limits.items() if limit != PromptLimit()}
        if settings.counter == "exact":
            check_installed()
        return msgspec.structs.replace(settings, answer_forms=forms, prompt_limits=known)

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

    @cached_property
    def _roster(self) -> Roster:
        return Roster(
            self.config.models,
            self.root,
            lambda: self._existing_journal,
            lambda: self.secrets,
            self._model,
            self.trust.may_bind,
            RunSettings.of(self.config).counter,
        )

    @cached_property
    def secrets(self) -> Secrets:
        if self._base is not None:
            return self._base.secrets
        from reyn.secrets import EnvironmentStore, Secrets, open_secrets

        origins = user_config()
        try:
            return open_secrets(origins=origins)
        except SecretStoreUnavailable:  # there is no home directory
            return Secrets([], EnvironmentStore(os.environ), origins)

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
            hint = "Trust the project, if the server is in its configuration." if note else None
            raise McpServerUnknown(f"no MCP server `{server}`; configured: {known}.{note}", hint=hint)
        credentials = {}
        for text in (*settings.env.values(), *settings.headers.values()):
            if text.startswith("secret://"):
                credentials[text] = self._secret_for(text, settings.url) if settings.url else self.secrets.resolve(text)
        try:
            return await self.mcp.definitions(server, settings, credentials)
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

    def _secret_for(self, handle: str, url: str) -> str:
        """Return the value of a secret in order to send it to a server."""
        from reyn.secrets import origin_of

        return self.secrets.resolve_for(handle, url, may_bind=self.trust.may_bind(handle, origin_of(url)))

    def _findings_of(self, folder: Path) -> list[Finding]:
        return lint_skill(folder, self.library, self.ops.vocabulary)

    def _learn_secrets(self) -> None:
        """Register the secrets outside the keyring, so that they are redacted in everything that is recorded."""
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

    def _compiler_for(self, tape: Tape) -> Callable[[kinds.RunStarted], CompiledSkill]:
        """Return a compiler for a run whose copies may not be in the journal yet."""
        return lambda started: self._reader.compile_skill(started, tape.content)

    async def aclose(self) -> None:
        """Interrupt the runs that are being executed and close models and journal.

        A runtime that was derived from another one is closed with that.
        """
        if self._base is not None:
            return
        executing = self._executing - {asyncio.current_task()}
        for task in executing:
            task.cancel()
        if executing:
            await asyncio.wait(executing)
        await self.mcp.aclose()
        if "_roster" in vars(self):
            await self._roster.close()
        if "_commits" in vars(self):
            self._commits.close()
        if "journal" in vars(self):
            self.journal.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _checked_id(run_id: str) -> str:
    if not is_run_id(run_id, MAX_ROOT_RUN_ID):
        raise RunIdInvalid(f"`{run_id}` is not a valid run id")
    return run_id


def _check_imported(skill: Skill, vocabulary: Vocabulary) -> None:
    """Check the copy of a skill from an archive. The import does not check copies under older rules."""
    check_pinned(skill)
    check_supported(skill, vocabulary)


def _check_of_files(skill: Skill) -> None:
    """Refuse to look for the current version of a skill that a Python function defines: a file may have its name."""
    if skill.function:
        raise UpgradeIncompatible(
            f"`{skill.name}` is the Python function `{skill.function}`; its current version is not in a file of skills",
            hint="Call the function again, or continue the run with its own copy.",
        )


def _with_warning(result: RunResult, warning: str) -> RunResult:
    return msgspec.structs.replace(result, warnings=(*result.warnings, warning))


def _is_conversation(skill: Skill) -> bool:
    """Whether the entry of a skill is a conversation, which can start with a history."""
    return skill.entry in skill.phases and skill.phases[skill.entry].conversation is not None
