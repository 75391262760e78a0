"""`SyncRuntime`: the methods of `OSRuntime` for synchronous code. A test compares the signatures of both."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from reyn.journal import ENDED
from reyn.runs.archive import ImportLimits
from reyn.runtime.os_runtime import OSRuntime
from reyn.runtime.stream import SyncRunStream

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from reyn.config import Config
    from reyn.context import NormalizedMessageList
    from reyn.context.budget import FrameSection
    from reyn.context.frame import ContextFrame
    from reyn.context.transcript import MemoryEntry
    from reyn.errors import NextAction
    from reyn.journal import Approval, Event, InboxMessage, Journal, RunRow, Status
    from reyn.kernel.core.conversations import ConversationSize
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.runtime_types import Clock, Ids, People, ReplayReport, RunResult, VerifyReport
    from reyn.kernel.world.hooks import Hook
    from reyn.kernel.world.run_scope import RunScope
    from reyn.kernel.world.services import Listener, OnDelta, OutputCheck
    from reyn.models import Image, Message, Model
    from reyn.models.listing import ModelStatus
    from reyn.ops import Op, OpTable, Overview
    from reyn.ops.mcp import Connections, ToolDefinitions
    from reyn.permissions.trust import ProjectTrust
    from reyn.runs.diff import DiffReport
    from reyn.runs.frames import VisitContext
    from reyn.runs.importing import ImportReport
    from reyn.runs.prune import PruneReport
    from reyn.runs.questions import OpenQuestion, PostedReply
    from reyn.runs.undo import UndoReport
    from reyn.runs.usage import BudgetStatus, Grouping, UsageReport
    from reyn.runtime.messages import PostedMessage
    from reyn.runtime.permissions import OpReport, OpVerdict, PermissionReport
    from reyn.secrets import Secrets
    from reyn.skills import Library, Skill
    from reyn.skills.agents import Agents
    from reyn.skills.cases import TrialReport

T = TypeVar("T")
_IMPORT_LIMITS = ImportLimits()


class SyncRuntime:
    """One project and its runs: `with SyncRuntime.open(".") as rt: result = rt.run("hello", {...})`.

    Each method blocks until the method of `OSRuntime` with the same name has returned. `runtime` is the underlying
    `OSRuntime`.
    """

    def __init__(self, runtime: OSRuntime, *, runner: asyncio.Runner | None = None) -> None:
        """Wrap a runtime. A `runner` belongs to the caller, who closes it and the runtime."""
        self.runtime = runtime
        self._owns_runner = runner is None
        self._runner = runner or asyncio.Runner()

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
        hooks: Sequence[Hook] = (),
        **settings: Any,
    ) -> Self:
        """Open a project; see `OSRuntime.open`."""
        return cls(
            OSRuntime.open(
                root,
                model=model,
                journal=journal,
                clock=clock,
                ids=ids,
                people=people,
                ops=ops,
                trust=trust,
                allow_shell=allow_shell,
                allow_unsafe_python=allow_unsafe_python,
                hooks=hooks,
                **settings,
            )
        )

    def derive(
        self,
        *,
        ops: Iterable[Op] = (),
        model: Model | str | None = None,
        permissions: Mapping[str, Any] | None = None,
        hooks: Sequence[Hook] = (),
        people: People | None = None,
        **settings: Any,
    ) -> Self:
        derived = self.runtime.derive(
            ops=ops, model=model, permissions=permissions, hooks=hooks, people=people, **settings
        )
        return type(self)(derived, runner=self._runner)

    @property
    def root(self) -> Path:
        return self.runtime.root

    @property
    def config(self) -> Config:
        return self.runtime.config

    @property
    def trust(self) -> ProjectTrust:
        return self.runtime.trust

    @property
    def library(self) -> Library:
        return self.runtime.library

    @property
    def people(self) -> People:
        return self.runtime.people

    @property
    def ops(self) -> OpTable:
        return self.runtime.ops

    @property
    def mcp(self) -> Connections:
        return self.runtime.mcp

    @property
    def journal(self) -> Journal:
        return self.runtime.journal

    @property
    def secrets(self) -> Secrets:
        return self.runtime.secrets

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Execute a coroutine of the underlying `OSRuntime` and return its result."""
        return self._runner.run(work)

    # -- executing runs -------------------------------------------------------------------------------

    def run(
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
        return self._runner.run(
            self.runtime.run(
                skill,
                input,
                run_id=run_id,
                listener=listener,
                on_delta=on_delta,
                check=check,
                within=within,
                history=history,
            )
        )

    def resume(
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
        return self._runner.run(
            self.runtime.resume(
                run,
                retry=retry,
                raise_limits=raise_limits,
                model=model,
                upgrade=upgrade,
                listener=listener,
                on_delta=on_delta,
                check=check,
            )
        )

    def run_background(
        self,
        conversation: str,
        run: str,
        *,
        listener: Listener | None = None,
        on_delta: OnDelta | None = None,
    ) -> RunResult:
        return self._runner.run(self.runtime.run_background(conversation, run, listener=listener, on_delta=on_delta))

    def stream(
        self, skill: str | Skill, input: Any = None, *, run_id: str | None = None, on_delta: OnDelta | None = None
    ) -> SyncRunStream:
        return SyncRunStream(self.runtime.stream(skill, input, run_id=run_id, on_delta=on_delta), self._runner)

    def resume_answered(
        self, answer: PostedReply, *, listener: Listener | None = None, on_delta: OnDelta | None = None
    ) -> RunResult | None:
        return self._runner.run(self.runtime.resume_answered(answer, listener=listener, on_delta=on_delta))

    def fork(
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
        return self._runner.run(
            self.runtime.fork(
                run,
                at=at,
                model=model,
                input=input,
                skill=skill,
                run_id=run_id,
                listener=listener,
                on_delta=on_delta,
            )
        )

    def rerun(
        self,
        run: str,
        *,
        model: str | None = None,
        upgrade: bool = False,
        run_id: str | None = None,
        listener: Listener | None = None,
        on_delta: OnDelta | None = None,
    ) -> RunResult:
        return self._runner.run(
            self.runtime.rerun(run, model=model, upgrade=upgrade, run_id=run_id, listener=listener, on_delta=on_delta)
        )

    def interrupt(self) -> bool:
        return self.runtime.interrupt()

    # -- messages, files, archives --------------------------------------------------------------------

    def answer(
        self,
        run: str,
        question_id: str,
        value: Any,
        *,
        is_text: bool = False,
        by: str = "",
        images: Sequence[Image] = (),
    ) -> PostedReply:
        return self.runtime.answer(run, question_id, value, is_text=is_text, by=by, images=images)

    def say(self, run: str, text: str, *, by: str = "") -> PostedMessage:
        return self.runtime.say(run, text, by=by)

    def rename(self, run: str, title: str, *, by: str = "") -> None:
        self.runtime.rename(run, title, by=by)

    def abort_turn(self, run: str, reason: str = "", *, partial: str = "") -> None:
        self.runtime.abort_turn(run, reason, partial=partial)

    def cancel(self, run: str, reason: str = "") -> None:
        self.runtime.cancel(run, reason)

    def undo(self, run: str, *, dry_run: bool = False) -> UndoReport:
        return self.runtime.undo(run, dry_run=dry_run)

    def changed_files(self, run: str) -> dict[str, str]:
        return self.runtime.changed_files(run)

    def prune(
        self, *, older_than: timedelta, statuses: Collection[Status] = ENDED, dry_run: bool = False
    ) -> PruneReport:
        return self.runtime.prune(older_than=older_than, statuses=statuses, dry_run=dry_run)

    def budgets(self, run: str) -> tuple[BudgetStatus, ...]:
        return self.runtime.budgets(run)

    def delete(self, runs: Collection[str], *, dry_run: bool = False) -> PruneReport:
        return self.runtime.delete(runs, dry_run=dry_run)

    def import_(
        self, lines: Iterable[bytes], *, origin: str = "an archive", limits: ImportLimits = _IMPORT_LIMITS
    ) -> ImportReport:
        return self.runtime.import_(lines, origin=origin, limits=limits)

    # -- reading runs ---------------------------------------------------------------------------------

    def is_recorded(self, run_id: str) -> bool:
        return self.runtime.is_recorded(run_id)

    def find(self, run: str) -> RunRow:
        return self.runtime.find(run)

    def runs(self) -> list[RunRow]:
        return self.runtime.runs()

    def root_run(self, row: RunRow) -> RunRow:
        return self.runtime.root_run(row)

    def display_status(self, row: RunRow) -> str:
        return self.runtime.display_status(row)

    def next_action(self, row: RunRow) -> NextAction | None:
        return self.runtime.next_action(row)

    def open_question(self, row: RunRow) -> OpenQuestion | None:
        return self.runtime.open_question(row)

    def question_text(self, question: OpenQuestion) -> str:
        return self.runtime.question_text(question)

    def events(self, run: str, after: int = 0) -> Iterator[Event]:
        return self.runtime.events(run, after)

    def inbox(self, run: str) -> list[InboxMessage]:
        return self.runtime.inbox(run)

    def content(self, hash: str) -> bytes:
        return self.runtime.content(hash)

    def state(self, run: str) -> RunState:
        return self.runtime.state(run)

    def result(self, run: str) -> RunResult:
        return self.runtime.result(run)

    def remember(self, run: str, text: str) -> None:
        self.runtime.remember(run, text)

    def forget(self, run: str, entry_id: str) -> None:
        self.runtime.forget(run, entry_id)

    def compact(self, run: str) -> None:
        self.runtime.compact(run)

    def memory(self, run: str) -> tuple[MemoryEntry, ...]:
        return self.runtime.memory(run)

    def conversation_size(self, run: str) -> ConversationSize:
        return self.runtime.conversation_size(run)

    def transcript(self, run: str, phase: str | None = None) -> NormalizedMessageList:
        return self.runtime.transcript(run, phase)

    def next_prompt(self, run: str, answer: Any = None) -> list[tuple[str, str]]:
        return self._runner.run(self.runtime.next_prompt(run, answer))

    def prompt_at(self, run: str, seq: int | None = None) -> list[tuple[str, str]]:
        return self.runtime.prompt_at(run, seq)

    def context_frame(self, run: str, seq: int | None = None) -> ContextFrame:
        return self.runtime.context_frame(run, seq)

    def prompt_sections(self, run: str, seq: int | None = None) -> tuple[FrameSection, ...]:
        return self.runtime.prompt_sections(run, seq)

    def visit_contexts(self, run: str) -> Iterator[VisitContext]:
        return self.runtime.visit_contexts(run)

    def replay(self, run: str) -> ReplayReport:
        return self._runner.run(self.runtime.replay(run))

    def verify(self, run: str, *, head: str | None = None) -> VerifyReport:
        return self.runtime.verify(run, head=head)

    def diff(self, a: str, b: str) -> DiffReport:
        return self.runtime.diff(a, b)

    def usage(self, by: Grouping = "day", *, since: int | None = None) -> UsageReport:
        return self.runtime.usage(by, since=since)

    def export(self, run: str) -> Iterator[bytes]:
        return self.runtime.export(run)

    # -- skills and models ----------------------------------------------------------------------------

    def mcp_tools(self, server: str) -> ToolDefinitions:
        return self._runner.run(self.runtime.mcp_tools(server))

    def accept_mcp_tools(self, definitions: ToolDefinitions) -> Path:
        return self.runtime.accept_mcp_tools(definitions)

    def accepted_mcp_tools(self, server: str) -> ToolDefinitions | None:
        return self.runtime.accepted_mcp_tools(server)

    def preload_model(self, name: str | None = None) -> None:
        self.runtime.preload_model(name)

    def explain_permissions(self, skill: str) -> PermissionReport:
        return self.runtime.explain_permissions(skill)

    def explain_op(self, skill: str, op: str | Mapping[str, Any]) -> OpReport | OpVerdict:
        return self.runtime.explain_op(skill, op)

    def permission_warnings(self, run: str) -> tuple[str, ...]:
        return self.runtime.permission_warnings(run)

    def approvals(self) -> list[Approval]:
        return self.runtime.approvals()

    def revoke_approval(self, approval_id: int) -> None:
        self.runtime.revoke_approval(approval_id)

    @property
    def agents(self) -> Agents:
        """The agents of the project, by name."""
        return self.runtime.agents

    def agent_skill(self, agent: str) -> Skill:
        return self.runtime.agent_skill(agent)

    def overviews(self, skill: Skill, message: str = "") -> dict[str, Overview]:
        return self.runtime.overviews(skill, message)

    def new_run_id(self) -> str:
        return self.runtime.new_run_id()

    def load(self, skill: str) -> Skill:
        return self.runtime.load(skill)

    def try_cases(self, skill: str) -> TrialReport:
        return self.runtime.try_cases(skill)

    def first_frame(self, skill: str, input: Any = None, *, phase: str | None = None) -> ContextFrame:
        return self.runtime.first_frame(skill, input, phase=phase)

    def check_config(self) -> None:
        self.runtime.check_config()

    def models(self) -> list[ModelStatus]:
        return self.runtime.models()

    def default_model(self) -> str:
        return self.runtime.default_model()

    # -- closing --------------------------------------------------------------------------------------

    def close(self) -> None:
        if not self._owns_runner:
            return
        self._runner.run(self.runtime.aclose())
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
