"""`OSRuntime`: open a project, and start, resume and read its runs.

    async with OSRuntime.open(".") as rt:
        result = await rt.run("hello", {"text": "..."})

It connects the packages below it and implements no rules of its own. The groups of its methods have modules of their
own; this one starts and continues runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from reyn.context import normalize
from reyn.errors import InputInvalid
from reyn.journal import Blob, canonical
from reyn.kernel.loading import pin_ops, start_event
from reyn.runs.questions import resume_answered
from reyn.runtime.executor import Observers, RunExecutor
from reyn.runtime.forks import Forks
from reyn.runtime.messages import RunMessages
from reyn.runtime.project import Project
from reyn.runtime.project_api import ProjectApi
from reyn.runtime.recorded_runs import RecordedRuns
from reyn.runtime.stream import RunStream
from reyn.skills.inputs import is_conversation, to_artifact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from reyn.chat import Conversation
    from reyn.journal import Journal
    from reyn.kernel.hooks import Hook
    from reyn.kernel.live import Listener, OnDelta, OutputCheck
    from reyn.kernel.nesting import RunScope
    from reyn.kernel.ports import Clock, Ids, People
    from reyn.kernel.runtime_types import RunResult
    from reyn.models import Message, Model
    from reyn.ops import Op
    from reyn.runs.questions import PostedReply
    from reyn.skills import Skill


class OSRuntime(ProjectApi, RecordedRuns, Forks, RunMessages):
    """One project and its runs. `SyncRuntime` has the same methods for synchronous code.

    A run is named by its id or by a unique prefix of it. Journal, model, clock, ids and people can be replaced; by
    default they come from the project and the system.
    """

    def __init__(self, project: Project, *, base: OSRuntime | None = None) -> None:
        """Execute the runs of an open project; `open` opens one.

        Args:
            project: The project.
            base: The runtime that this one was derived from.
        """
        super().__init__(project, RunExecutor(project, self, base._executor if base else None))  # noqa: SLF001 - of this class

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
            hooks: Functions that are called before each model call and return mutations of what the model sees.
            **settings: Keys of the configuration to override.
        """
        project = Project.open(
            root,
            settings,
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
        )
        return cls(project)

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
        """Return a runtime of the same project with other ops, model or settings.

        It shares journal and commits with this one and is closed with it. Runs that it starts are runs of the
        project like any other. The ops of another derived runtime are not inherited.

        Args:
            ops: Ops to add; they replace ops of the same kind that are not built in.
            model: A model, or the name of one; by default that of this runtime.
            permissions: Rules to add to those of the configuration.
            hooks: Hooks to call after those of this runtime.
            people: Replies to the questions of its runs; by default those of this runtime.
            **settings: Keys of the configuration to override.

        Raises:
            OpInvalid: An object is not an op, or its kind cannot be registered.
        """
        project = self._project.derive(
            settings, ops=ops, model=model, permissions=permissions, hooks=hooks, people=people
        )
        return type(self)(project, base=self)

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
        observers, value = Observers(listener, on_delta, check), self._project.scrub(input)
        name = self._executor.checked_id(run_id)

        async def again() -> RunResult:
            return await self._executor.run_again(name, skill, value, observers)

        if run_id is not None and self.is_recorded(name):
            return await self._executor.claim_and_execute(name, again, observers)
        loaded = self._project.load(skill) if isinstance(skill, str) else self._project.check_skill(skill)
        earlier = normalize(history)
        if earlier.length and not is_conversation(loaded):
            raise InputInvalid(f"phase `{loaded.entry}` is not a conversation, so that a run cannot have a history")
        if within is not None:
            return await self._executor.run_within(within, loaded, value, observers, earlier)
        settings = self._project.run_settings()
        artifact = Blob.of(canonical(to_artifact(value, loaded, strict=settings.strict)))
        model = self._project.roster.ready(self._project.config.model)

        async def start() -> RunResult:
            if self._project.journal.find(name) is not None:  # another process was faster
                return await again()
            first = start_event(
                name,
                loaded,
                settings,
                pin_ops(loaded, self._project.ops.vocabulary),
                artifact,
                model=model,
                answer_form=self._project.roster.answer_form(model),
                prompt_limit=self._project.roster.prompt_limit(model),
                source=self._project.source_of(skill),
                summaries=self._project.summaries(loaded, settings),
                history=self._project.store_history(earlier),
                hooks=self._project.hook_names,
            )
            return await self._executor.start(first, model, observers)

        return await self._executor.claim_and_execute(name, start, observers)

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
        run_id, observers = self._project.reader.find(run).run_id, Observers(listener, on_delta, check)
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
            listener: Called with every event once it is durable.
            on_delta: Called with every piece of a model's answer as it arrives.

        Raises:
            RunNotFound: The conversation did not start this run.
            RunBusy: Another process executes it.
        """
        found = self._project.reader.find(conversation).run_id
        return await self._executor.run_background(found, run, Observers(listener, on_delta))

    def chat(self, agent: str = "default", *, run_id: str | None = None, by: str = "") -> Conversation:
        """Open a conversation with an agent: `async with rt.chat() as chat: reply = await chat.say("hello")`.

        Args:
            agent: The agent; its file is `reyn/agents/NAME.md`. An existing conversation keeps the agent that it has.
            run_id: The conversation to continue, or the id of a new one; generated by default.
            by: The name of the user, recorded with the messages.

        Raises:
            AgentNotFound: There is no such agent.
            InputInvalid: The run is not a conversation with an agent.
        """
        # `reyn.chat` is built on this package.
        opened: Conversation = import_module("reyn.chat.opening").open_conversation(self, agent, run_id, by)
        return opened

    def stream(
        self, skill: str | Skill, input: Any = None, *, run_id: str | None = None, on_delta: OnDelta | None = None
    ) -> RunStream:
        """Start a run and iterate over its events as they become durable; `.result` holds the result at the end."""
        return RunStream(lambda listener: self.run(skill, input, run_id=run_id, listener=listener, on_delta=on_delta))

    async def resume_answered(
        self, answer: PostedReply, *, listener: Listener | None = None, on_delta: OnDelta | None = None
    ) -> RunResult | None:
        """Resume the root run of a posted reply, unless another process executes it.

        Returns:
            The result of the root run; `None` if another process continues it.
        """
        return await resume_answered(
            self._project.journal, answer, lambda root: self.resume(root, listener=listener, on_delta=on_delta)
        )

    def interrupt(self) -> bool:
        """Interrupt the runs that this runtime executes; they can be resumed. Safe in signal handlers and threads.

        The interrupted calls raise `asyncio.CancelledError`.

        Returns:
            False if no run is being executed.
        """
        return self._executor.interrupt()

    async def aclose(self) -> None:
        """Interrupt the runs that are being executed and close models and journal.

        A runtime that was derived from another one is closed with that.
        """
        if self._project.is_derived:
            return
        await self._executor.interrupt_others()
        await self._project.close_connections()
        self._executor.close()
        self._project.close_journal()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
