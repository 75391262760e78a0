"""`OSRuntime`: open a project, and start, resume and read its runs.

    async with OSRuntime.open(".") as rt:
        result = await rt.run("hello", {"text": "..."})

`runs`, `project`, `permissions` and `conversations` of a runtime are objects of their own. None of them implements
rules; `executor` and the packages below do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from reyn.context.transcript import normalize
from reyn.errors import ProjectNotFound
from reyn.journal.cancellation import cancel_run
from reyn.journal.submission import DEFAULT_QUEUE
from reyn.kernel.runtime_types import Clock, Ids, People, SystemClock, TimedIds, Unattended
from reyn.kernel.world.hooks import Hook, check_hooks
from reyn.kernel.world.services import Observers, Services
from reyn.models.answers import as_model
from reyn.permissions.trust import OpenProject
from reyn.runs.fork import ForkChanges
from reyn.runs.recorded import Runs
from reyn.runtime.answering import post_answer, resume_answered
from reyn.runtime.conversations import Conversations
from reyn.runtime.executor import RunExecutor
from reyn.runtime.forks import fork, rerun
from reyn.runtime.permissions import Permissions
from reyn.runtime.project import Project
from reyn.runtime.run_stream import RunStream
from reyn.runtime.submitting import submit_new
from reyn.runtime.workers import Workers

if TYPE_CHECKING:
    from reyn.journal import Journal, RunRow
    from reyn.journal.results import RunResult
    from reyn.kernel.world.inbox import PostedReply
    from reyn.kernel.world.run_scope import RunScope
    from reyn.kernel.world.services import Listener, OutputCheck
    from reyn.kernel.world.watchers import OnDelta
    from reyn.models import Image, Message, Model, ModelFunction
    from reyn.ops import Op
    from reyn.runtime.trials import Trials
    from reyn.skills import Skill


class OSRuntime:
    """A project and its runs. `SyncRuntime` has the same methods for synchronous code.

    Methods that take a `run` accept its id or a unique prefix of the id. You can replace the journal, the model, the
    clock, the generator of ids, and `people`, who reply to questions.

    Attributes:
        runs: The recorded runs.
        project: The project: skills, agents, models, settings.
        permissions: The permissions of skills, explained, and standing approvals.
        conversations: Messages to runs that are conversations, and their memory.
        workers: Submitted runs, and the workers that execute them.
        services: What the runs use, for packages that extend Reyn.
    """

    def __init__(self, services: Services) -> None:
        """Create a runtime with services. Use `open` to open a project."""
        self.services = services
        self.runs = Runs(services)
        self.project = Project(services)
        self.permissions = Permissions(services)
        self._executor = RunExecutor(services, self.runs)
        self.conversations = Conversations(self._executor)
        self.workers = Workers(self._executor)
        if services.run_cases is None:
            services.run_cases = lambda *call: self._trials.run(*call)  # noqa: PLW0108 - made on first use

    @cached_property
    def _trials(self) -> Trials:
        from reyn.runtime.trials import Trials

        return Trials(self.services, _run_case)

    @classmethod
    def open(
        cls,
        root: str | Path = ".",
        *,
        model: Model | ModelFunction | str | None = None,
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

        If it is not trusted, Reyn ignores the settings in its files that grant access: wider file zones, permissions,
        secrets for new servers, code to load. `project.trust.ignored` lists them.

        Args:
            root: The project's folder.
            model: A model, a function from a request to its answer, or its name; default: `model` in `reyn.yaml`.
            journal: The journal that records runs; default: `.reyn/journal.db`.
            clock: The clock; default: the system's.
            ids: The generator of run ids; default: random ids.
            people: An object that replies to questions; by default a run that asks a question stops and waits.
            ops: Ops to register besides the built-in and installed ones.
            trust: Whether to trust the project and its journal; default: the decision that `reyn trust` stored.
            allow_shell: Whether skills that have the permission `shell` may run shell commands.
            allow_unsafe_python: Whether python steps with `mode: unsafe` may run, with all rights of this process.
            hooks: Functions that Reyn calls before each model call; they return mutations of the transcript.
            **settings: Configuration keys to override, such as `strict=True`; `None` removes a limit.

        Raises:
            ConfigInvalid: The configuration has an unknown key or an invalid value.
            ProjectNotFound: The folder does not exist.
            AdapterInvalid: `model` is no model.
        """
        used, project = _model_of(model, settings), _open_project(root, settings, trust=trust)
        services = Services(
            root=Path(root).resolve(),
            config=project.opened.config,
            trust=project.opened.trust,
            project=project,
            model=used,
            clock=clock or SystemClock(),
            ids=ids or TimedIds(),
            people=people or Unattended(),
            hooks=check_hooks(hooks),
            added_ops=tuple(ops),
            allow_shell=allow_shell,
            allow_unsafe_python=allow_unsafe_python,
            adopts_journal=trust is True,
        )
        if journal is not None:
            services.journal = journal
        return cls(services)

    def derive(
        self,
        *,
        ops: Iterable[Op] = (),
        model: Model | ModelFunction | str | None = None,
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
            model: A model, a function that is one, or the name of one; default: the model of this runtime.
            permissions: Permission rules to add to those of this runtime.
            hooks: Hooks to call after those of this runtime.
            people: An object that replies to the questions of its runs; default: that of this runtime.
            **settings: Configuration keys to override.

        Raises:
            OpInvalid: An object is not an op, or its kind cannot be registered.
        """
        used = _model_of(model, settings)
        services = self.services.derive(
            settings, ops=tuple(ops), model=used, permissions=permissions, hooks=hooks, people=people
        )
        return type(self)(services)

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
        images: Sequence[Image] = (),
        wait: bool = True,
    ) -> RunResult:
        """Start a run and execute it until it ends or stops.

        With the `run_id` of an existing run, continue that run if it was interrupted or has a stored reply; otherwise
        return its result. If the run is being executed, here or in another process, wait for its result. A run that
        fails, waits or reaches a limit raises no error: see `status` of the result.

        Args:
            skill: The name or path of the skill, or a `Skill` object.
            input: Data of the entry phase's input type, an artifact with `type` and `data`, or text (`user_message`).
            run_id: The id of the run; generated by default.
            listener: A callback that receives every event after it is durable. If the run is being executed, it
                receives those from the first one on.
            on_delta: A callback that receives the pieces of a model's answer as they arrive.
            check: Validates the final output in addition to its schema, for skills with `checks_output`. It returns
                path and message of an error, with which Reyn calls the model again, or two empty strings.
            within: Pass `current_scope()` inside an op to start a sub-run of the op's run. If Reyn repeats the op
                after a crash, the same call continues the same sub-run.
            history: Earlier messages, if the entry phase is a conversation: `Message` objects, or dicts in the format
                of chat completion APIs. Messages from `rt.runs.transcript()` are already stored; Reyn references them.
                A system message takes the place of the phase's instructions.
            images: Images of the input, for the entry phase. A model that reads no images fails (`RYN534`).
            wait: Whether to wait for a run that is being executed; if not, its current state is returned.

        Raises:
            SkillNotFound: There is no skill with this name or path.
            SkillInvalid: The skill has errors.
            SkillUnsupported: The skill uses a feature that this version cannot execute.
            InputInvalid: The entry phase does not accept the input, or is no conversation and has a `history`.
            RunIdInvalid: `run_id` is not a valid id.
            RunIdTaken: A run with this id exists for a different skill, input, images, history or instructions.
            RunBusy: The run calls this itself, so that it would wait for itself.
            RunBlocked: This version cannot execute the existing run.
            ModelUnknown: No model is configured, or its name is unknown.
            ModelNotInstalled: A package or the weights of the model are not installed.
            MessageInvalid: A message in `history` has an unknown role, a malformed field or invalid text.
            TranscriptInvalid: A tool call in `history` does not have exactly one result.
        """
        value, observers = self.services.scrubber.scrub_value(input), Observers(listener, on_delta, check)
        return await self._executor.run(skill, value, run_id, within, normalize(history), observers, images, wait=wait)

    def submit(
        self,
        skill: str | Skill,
        input: Any = None,
        *,
        run_id: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int | None = None,
        labels: Sequence[str] = (),
    ) -> RunRow:
        """Start a run that workers execute (`reyn worker`), and return at once: it is queued.

        `runs.watch` follows it. With the `run_id` of an existing run, that run is submitted if it was interrupted or
        waits, unless it has been. Questions are answered with `answer`, which continues the run.

        Args:
            skill: The skill; see `run`.
            input: The input; see `run`.
            run_id: The id of the run; generated by default.
            queue: The queue whose workers execute it.
            priority: Higher ones are executed first; by default that of the skill or of the queue, or 0.
            labels: The labels that a worker needs to execute it, beside those of the skill.

        Raises:
            QueueInvalid: The queue or a label has an invalid name, or the priority is out of range.
            RunIdTaken: A run with this id exists for a different skill or input.
        """
        value = self.services.scrubber.scrub_value(input)
        return submit_new(self._executor, skill, value, run_id, queue, priority, labels)

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
            RunBusy: Another process executes the run, or another call in this process.
        """
        executor, run_id, observers = self._executor, self.runs.find(run).run_id, Observers(listener, on_delta, check)
        attempt = partial(
            executor.resume, run_id, observers, retry=retry, raised=raise_limits, model=model, upgrade=upgrade
        )
        return await executor.claim_and_share(run_id, attempt, observers)

    async def fork(
        self,
        run: str,
        *,
        at: int | None = None,
        model: str | None = None,
        input: Any = None,
        skill: str | None = None,
        instructions: Mapping[str, str] | None = None,
        answer: dict[str, Any] | str | None = None,
        run_id: str | None = None,
        listener: Listener | None = None,
        on_delta: OnDelta | None = None,
    ) -> RunResult:
        """Start a new run that continues from an event of an existing run. The existing run does not change.

        A fork of an imported run starts between two visits, with the settings and the model of this project.

        Args:
            run: The run to fork.
            at: The number of the event; default: the last possible one. A warning names unsafe ops after it.
            model: The model to call from there on.
            input: A new input for the next phase.
            skill: The skill to continue with: a different one, or the current version of the same one.
            instructions: New instructions of phases, by name. By default, a fork begins before the last visit of each.
            answer: The answer to the last model call at or before the event, in place of the model's: a decision, or a
                text. It is checked as an answer of the model is, before the fork is made.
            run_id: The id of the new run; generated by default.
            listener: A callback that receives every event after it is durable.
            on_delta: A callback that receives the pieces of a model's answer as they arrive.
        """
        row, observers = self.runs.find(run), Observers(listener, on_delta)
        changes = ForkChanges(model, input, skill, instructions or {}, answer)
        return await fork(self._executor, row, observers, at=at, changes=changes, run_id=run_id)

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
        """Start a new run with the input, settings and skill of an existing run.

        For an imported run, the new run has the settings and the model of this project.

        Args:
            run: The run to repeat.
            model: The model to call; default: the model of the run.
            upgrade: Use the current version of the skill instead of the run's own copy.
            run_id: The id of the new run; generated by default.
            listener: A callback that receives every event after it is durable.
            on_delta: A callback that receives the pieces of a model's answer as they arrive.
        """
        row, observers = self.runs.find(run), Observers(listener, on_delta)
        return await rerun(self._executor, row, observers, model=model, upgrade=upgrade, run_id=run_id)

    def stream(
        self, skill: str | Skill, input: Any = None, *, run_id: str | None = None, on_delta: OnDelta | None = None
    ) -> RunStream:
        """Start a run and return an async iterator over its events. After the last one, `.result` is the result."""
        return RunStream(lambda listener: self.run(skill, input, run_id=run_id, listener=listener, on_delta=on_delta))

    def answer(
        self, run: str, question_id: str | None, value: Any, *, is_text: bool = False, by: str = ""
    ) -> PostedReply:
        """Post a reply to an open question of a run or of its descendants.

        If a process executes the run, it continues with the reply. `resume_answered` resumes the run otherwise.

        Args:
            run: The run that asks, or an ancestor of it.
            question_id: The id of the question, which the reply to an approval must name. With `None`, the reply is
                for whatever other question is open.
            value: The reply, a JSON value.
            is_text: Whether `value` is text that a user typed. It is parsed as JSON unless the question takes text.
            by: The name of the user who replies; it is recorded.

        Raises:
            ApprovalUnnamed: The open question is an approval, and `question_id` is `None`.
            QuestionUnknown: The question is not open, has a reply already, or has expired.
            ReplyInvalid: The reply does not match the schema of the question.
        """
        return post_answer(self.services, run, question_id, value, is_text=is_text, by=by)

    async def resume_answered(
        self, answer: PostedReply, *, listener: Listener | None = None, on_delta: OnDelta | None = None
    ) -> RunResult | None:
        """Resume the root run of a posted reply, unless another process executes it.

        Returns:
            The result of the root run; `None` if another process continues it.
        """
        resume = partial(self.resume, listener=listener, on_delta=on_delta)
        return await resume_answered(self.services.existing_journal, answer, resume)

    def cancel(self, run: str, reason: str = "") -> None:
        """Cancel a run and its descendants. The process that executes the run stops before the next effect.

        Raises:
            RunNotResumable: The run has ended.
        """
        row = self.runs.find(run)
        for run_id in cancel_run(self.services.journal, row, reason, self.services.clock.now):
            self.services.polling.notify(run_id)

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
        if self.services.base is not None:
            return
        await self._executor.interrupt_others()
        await self.services.close_connections()
        self.services.close_journal()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.aclose()


def _model_of(model: Model | ModelFunction | str | None, settings: dict[str, Any]) -> Model | None:
    """Return the model that a program passes; the name of one becomes a setting."""
    if isinstance(model, str):
        settings["model"], model = model, None
    return None if model is None else as_model(model)


def _open_project(root: str | Path, settings: dict[str, Any], *, trust: bool | None) -> OpenProject:
    folder = Path(root).resolve()
    if not folder.is_dir():
        raise ProjectNotFound(f"no folder `{root}`")
    return OpenProject(folder, settings, trust=trust)


async def _run_case(services: Services, skill: str, input: Any) -> RunResult:
    async with OSRuntime(services) as runtime:
        return await runtime.run(skill, input, run_id="case")
