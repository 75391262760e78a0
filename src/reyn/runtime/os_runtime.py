"""`OSRuntime`: open a project, and start, resume and read its runs.

    async with OSRuntime.open(".") as rt:
        result = await rt.run("hello", {"text": "..."})

This module starts and continues runs, `forks` starts them from recorded ones, `messages` posts replies and
cancellations. `runs`, `project` and `permissions` of a runtime are objects of their own. None of them implements
rules; the packages below do.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from reyn.context.transcript import normalize
from reyn.errors import InputInvalid, ModelError, NextAction, OpMissing, ReynError, RunBusy, RunNotResumable
from reyn.journal import Blob, canonical
from reyn.kernel.world.loading import pin_settings
from reyn.kernel.world.services import Observers
from reyn.runtime.executor import RunExecutor
from reyn.runtime.forks import Forks
from reyn.runtime.messages import RunMessages
from reyn.runtime.permissions import Permissions
from reyn.runtime.project import Project
from reyn.runtime.services import ProjectOptions
from reyn.skills.inputs import to_artifact

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from reyn.context import NormalizedMessageList
    from reyn.journal import Event, Journal
    from reyn.kernel.runtime_types import Clock, Ids, People, RunResult
    from reyn.kernel.world.hooks import Hook
    from reyn.kernel.world.run_scope import RunScope
    from reyn.kernel.world.services import Listener, OnDelta, OutputCheck
    from reyn.models import Message, Model
    from reyn.ops import Op
    from reyn.runs.questions import PostedReply
    from reyn.runtime.trials import Trials
    from reyn.skills import Skill
    from reyn.skills.cases import TrialReport


class _Call(NamedTuple):
    """A call of `OSRuntime.run`."""

    skill: str | Skill
    input: Any
    run_id: str | None
    observers: Observers


class OSRuntime(Forks, RunMessages):
    """A project and its runs. `SyncRuntime` has the same methods for synchronous code.

    Methods that take a `run` accept its id or a unique prefix of the id. You can replace the journal, the model, the
    clock, the generator of ids, and `people`, who reply to questions.
    """

    def __init__(self, project: Project, *, base: OSRuntime | None = None) -> None:
        """Create a runtime for an open project. Use `open` to open a project.

        Args:
            project: The project.
            base: The runtime that this one was derived from.
        """
        super().__init__(project, RunExecutor(project, self, base._executor if base else None))  # noqa: SLF001 - of this class
        self.permissions = Permissions(project)
        if not project.is_derived:
            project.run_cases = self._run_cases

    def _run_cases(self, folder: Path) -> TrialReport:
        return self._trials.run(folder)

    @cached_property
    def _trials(self) -> Trials:
        from reyn.runtime.trials import Trials

        return Trials(self.project, _run_case)

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
        """Open a project.

        If the project is not trusted, Reyn ignores the settings in its files that grant access: wider file zones,
        permissions, secrets for new servers, code to load. `trust.ignored` of the runtime lists them.

        Args:
            root: The project's folder.
            model: A model, or the name of one; default: `model` in `reyn.yaml`.
            journal: The journal that records runs; default: `.reyn/journal.db`.
            clock: The clock; default: the system's.
            ids: The generator of run ids; default: random ids.
            people: An object that replies to questions; by default a run that asks a question stops and waits.
            ops: Ops to register besides the built-in and installed ones.
            trust: Whether to treat the project and its journal as trusted; default: the decision that `reyn trust`
                stored.
            allow_shell: Whether skills that have the permission `shell` may run shell commands.
            allow_unsafe_python: Whether python steps with `mode: unsafe` may run, with all rights of this process.
            hooks: Functions that Reyn calls before each model call; they return mutations of the transcript.
            **settings: Configuration keys to override, such as `strict=True`.

        Raises:
            ConfigInvalid: The configuration has an unknown key or an invalid value.
            ProjectNotFound: The folder does not exist.
        """
        if isinstance(model, str):
            settings["model"], model = model, None
        options = ProjectOptions(
            model=model,
            journal=journal,
            clock=clock,
            ids=ids,
            people=people,
            ops=ops,
            hooks=hooks,
            vouches=trust is True,
            allow_shell=allow_shell,
            allow_unsafe_python=allow_unsafe_python,
        )
        return cls(Project.open(root, settings, options, trust=trust))

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
        """Return a runtime for the same project with different ops, model or settings.

        The derived runtime shares the journal and commits with this one, and is closed with it. It does not
        inherit the ops of other derived runtimes.

        Args:
            ops: Ops to add. An op replaces an added or installed op of the same kind.
            model: A model, or the name of one; default: the model of this runtime.
            permissions: Permission rules to add to those of the configuration.
            hooks: Hooks to call after those of this runtime.
            people: An object that replies to the questions of its runs; default: that of this runtime.
            **settings: Configuration keys to override.

        Raises:
            OpInvalid: An object is not an op, or its kind cannot be registered.
        """
        if isinstance(model, str):
            settings["model"], model = model, None
        options = ProjectOptions(ops=ops, model=model, hooks=hooks, people=people)
        return type(self)(self.project.derive(settings, permissions, options), base=self)

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

        With the `run_id` of an existing run, continue that run if it was interrupted or has a stored reply; otherwise
        return its result. A run that fails, waits or reaches a limit raises no error: see `status` of the result.

        Args:
            skill: The name or path of the skill, or a `Skill` object.
            input: The data of the entry phase's input type, or an artifact with `type` and `data`. Plain text is data
                of the type `user_message`.
            run_id: The id of the run; generated by default.
            listener: A callback that receives every event after it is durable.
            on_delta: A callback that receives the pieces of a model's answer as they arrive.
            check: Validates the final output in addition to its schema, for skills with `checks_output`. It returns
                the JSON path and the message of an error, or two empty strings. After an error, Reyn calls the model
                again.
            within: Pass `current_scope()` inside an op to start a sub-run of the op's run. If Reyn repeats the op
                after a crash, the same call continues the same sub-run.
            history: Earlier messages, if the entry phase is a conversation: `Message` objects, or dicts in the format
                of chat completion APIs. Messages from `rt.runs.transcript()` are already stored; Reyn references them.
                System messages are ignored, because the phase has its own system prompt.

        Raises:
            SkillNotFound: There is no skill with this name or path.
            SkillInvalid: The skill has errors.
            SkillUnsupported: The skill uses a feature that this version cannot execute.
            InputInvalid: The entry phase does not accept the input, or `history` is passed to a phase that is not a
                conversation.
            RunIdInvalid: `run_id` is not a valid id.
            RunIdTaken: A run with this id exists for a different skill or input.
            RunBusy: Another process executes the run.
            RunBlocked: This version cannot execute the existing run.
            ModelUnknown: No model is configured, or its name is unknown.
            ModelNotInstalled: A package or the weights of the model are not installed.
            MessageInvalid: A message in `history` has an unknown role, a malformed field or invalid text.
            TranscriptInvalid: A tool call in `history` does not have exactly one result.
        """
        call = _Call(skill, self.project.scrub(input), run_id, Observers(listener, on_delta, check))
        return await self._run(call, within, normalize(history))

    async def _run(self, call: _Call, within: RunScope | None, history: NormalizedMessageList) -> RunResult:
        project, executor, (skill, value, run_id, observers) = self.project, self._executor, call
        name = executor.checked_id(run_id)

        async def again() -> RunResult:
            return await executor.run_again(name, skill, value, observers)

        if run_id is not None and self.runs.is_recorded(name):
            return await executor.claim_and_execute(name, again, observers)
        loaded = project.load(skill) if isinstance(skill, str) else project.check_skill(skill)
        if history.length and not loaded.holds_conversation(loaded.entry):
            raise InputInvalid(f"phase `{loaded.entry}` is not a conversation, so a run cannot start with a history")
        if within is not None:
            return await executor.run_within(within, loaded, value, observers, history)
        settings = project.run_settings()
        artifact = Blob.of(canonical(to_artifact(value, loaded, strict=settings.strict)))
        model = project.roster.ready(project.config.model)

        async def start() -> RunResult:
            if run_id is not None and project.journal.find(name) is not None:  # another process was faster
                return await again()
            spec = executor.spec(name, loaded, artifact, pin_settings(settings), model)
            spec = spec._replace(
                source=project.source_of(skill),
                summaries=project.summaries(loaded, settings),
                history=project.store_history(history),
            )
            return await executor.start(spec, observers)

        return await executor.claim_and_execute(name, start, observers)

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
            listener: A callback that receives every event after it is durable.
            on_delta: A callback that receives the pieces of a model's answer as they arrive.
            check: Validates the final output; see `run`.

        Raises:
            RunNotFound: There is no such run.
            RunNotResumable: The run cannot be resumed with these options. `action` of the error is the operation that
                continues it.
            RunBusy: Another process executes the run.
        """
        run_id, observers = self.runs.find(run).run_id, Observers(listener, on_delta, check)
        return await self._executor.claim_and_execute(
            run_id,
            lambda: self._executor.resume(
                run_id, observers, retry=retry, raised=raise_limits, model=model, upgrade=upgrade
            ),
            observers,
        )

    async def run_background(
        self,
        conversation: str,
        run: str,
        *,
        listener: Listener | None = None,
        on_delta: OnDelta | None = None,
    ) -> RunResult:
        """Execute a run that a conversation started in the background, until it ends or stops.

        If it has begun before, it continues. Its end is reported to the conversation as a message.

        Args:
            conversation: The conversation.
            run: The id of the background run.
            listener: A callback that receives every event after it is durable.
            on_delta: A callback that receives the pieces of a model's answer as they arrive.

        Raises:
            RunNotFound: The conversation did not start this run.
            RunBusy: Another process executes it.
        """
        run_id = self.runs.find(conversation).run_id
        return await self._executor.run_background(run_id, run, Observers(listener, on_delta))

    def stream(
        self, skill: str | Skill, input: Any = None, *, run_id: str | None = None, on_delta: OnDelta | None = None
    ) -> RunStream:
        """Start a run and return an async iterator over its events. After the last one, `.result` is the result."""
        return RunStream(lambda listener: self.run(skill, input, run_id=run_id, listener=listener, on_delta=on_delta))

    async def resume_answered(
        self, answer: PostedReply, *, listener: Listener | None = None, on_delta: OnDelta | None = None
    ) -> RunResult | None:
        """Resume the root run of a posted reply, unless another process executes it.

        Returns:
            The result of the root run; `None` if another process continues it.
        """
        if answer.is_claimed:
            return None
        try:
            return await self.resume(answer.root_run, listener=listener, on_delta=on_delta)
        except RunBusy:  # another process claimed the run first
            return None
        except RunNotResumable:
            asking = self.project.journal.find(answer.run_id)
            if asking is not None and asking.messages_taken >= answer.message_id:  # another process took it first
                return None
            raise
        except (ModelError, OpMissing) as error:
            advice = "; resume the run, with another model if necessary" if isinstance(error, ModelError) else ""
            error.set_hint(f"The reply is stored{advice}. {error.hint}")
            error.action = error.action or NextAction("resume", answer.root_run)
            raise

    def interrupt(self) -> bool:
        """Interrupt the runs that this runtime executes; they can be resumed. Safe in signal handlers and threads.

        The interrupted calls raise `asyncio.CancelledError`.

        Returns:
            False if no run is being executed.
        """
        return self._executor.interrupt()

    async def aclose(self) -> None:
        """Interrupt the runs that are being executed, then close models and journal.

        On a derived runtime, this does nothing: it is closed with the runtime that it was derived from.
        """
        if self.project.is_derived:
            return
        await self._executor.interrupt_others()
        await self.project.close_connections()
        self._executor.close()
        self.project.close_journal()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def _run_case(project: Project, skill: str, input: Any) -> RunResult:
    async with OSRuntime(project) as runtime:
        return await runtime.run(skill, input, run_id="case")


class RunStream:
    """An async iterator of events. The run starts with the first event that is requested.

    Closing the stream early interrupts the run, which can be resumed.
    """

    def __init__(self, start: Callable[[Listener], Awaitable[RunResult]]) -> None:
        self._start = start
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._task: asyncio.Task[RunResult] | None = None

    @property
    def result(self) -> RunResult:
        """The result of the run, available after the last event."""
        if self._task is None or not self._task.done():
            raise ReynError("the run has not ended", hint="Iterate to the end of the stream first.")
        return self._task.result()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._task is None:
            self._task = asyncio.ensure_future(self._start(self._events.put_nowait))
            self._task.add_done_callback(lambda _: self._events.put_nowait(None))
        event = await self._events.get()
        if event is None:
            self._events.put_nowait(None)
            self._task.result()  # raises what the run raised
            raise StopAsyncIteration
        return event

    async def aclose(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
