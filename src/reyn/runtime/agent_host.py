"""What the runtime offers to the service that carries messages between agents: open a conversation, and execute it.

A conversation that an agent opened is a sub-run with the rights of its own agent. It draws on the budgets of the runs
above it, and stops where it waits for the next message.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from reyn.config.values import PromptLimit
from reyn.context import NormalizedMessageList, rendered_message
from reyn.context.histories import HISTORIES
from reyn.journal import ENDED, AbortTurn, Blob, Cancel, RaiseLimit, Say, canonical, decode, kinds
from reyn.kernel import versions
from reyn.kernel.core.limits import SECOND, limit_of, sub_run_settings
from reyn.kernel.core.run_state import fold
from reyn.kernel.runtime_types import LATER
from reyn.kernel.world.loading import Resumption, check_ops, load_run, new_tape, pin_ops
from reyn.runs.family import descendants

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from reyn.config import RunSettings
    from reyn.config.values import AgentsSettings
    from reyn.journal import Journal, RunRow
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.runtime_types import Clock, People
    from reyn.kernel.world.inbox import InboxPolling
    from reyn.runtime.project import Project
    from reyn.skills import Skill

    Execute = Callable[[Tape, Resumption | None, Tape, str, People], Awaitable[RunState]]
    """Executes a sub-run of the run of the second tape, with a model and the people who are asked."""
    History = tuple[tuple[kinds.HistoryPart, ...], tuple[Blob, ...]]


class _NoUser:
    """The `people` of a conversation that another agent opened: no user types the next message.

    Its other questions reach the user of the run that asks.
    """

    def __init__(self, people: People) -> None:
        self._people = people

    async def ask(self, run_id: str, question: kinds.Question) -> Any:
        return LATER if question.is_message else await self._people.ask(run_id, question)


class AgentHost:
    """The agents of a project, and the conversations that they open with each other."""

    def __init__(self, project: Project, polling: InboxPolling, execute: Execute) -> None:
        self._project = project
        self._polling = polling
        self._execute = execute

    @property
    def journal(self) -> Journal:
        """The journal."""
        return self._project.journal

    @property
    def clock(self) -> Clock:
        """The clock."""
        return self._project.clock

    @property
    def settings(self) -> AgentsSettings:
        """The limits of messages between agents."""
        return self._project.config.agents

    def find_skill(self, agent: str) -> tuple[Skill, Blob]:
        """Return the skill of a conversation with an agent, and its op specifications.

        Raises:
            AgentNotFound: There is no such agent.
            SkillInvalid: Its file has errors.
        """
        skill = self._project.agent_skill(agent)
        return skill, pin_ops(skill, self._project.ops.vocabulary)

    def history_of(self, run: str, seq: int) -> History:
        """Return the messages of a conversation up to an event, as the history of a new one."""
        state = fold(islice(self.journal.read(run), seq))
        found = state.conversations.get(state.phase)
        if found is None or found.visit:
            return (), ()
        own = found.messages.tail(found.messages.length)
        rendered = (rendered_message(message, self.journal.blob, with_images=True) for message in own)
        whole: NormalizedMessageList = HISTORIES.load(found.history, self.journal.blob).append(*rendered)
        return self._project.store_history(whole)

    def state_of(self, run: str) -> RunState:
        """Return the state of a conversation."""
        return load_run(self.journal, run).state

    async def open(self, asked: kinds.AgentAsked, ask: kinds.AskRef, tape: Tape) -> RunState:
        """Start the conversation of a message, which is its input, and execute it until it waits or stops."""
        roster, above = self._project.roster, tape.state.started
        assert above is not None
        assert asked.skill_hash is not None
        assert asked.input is not None
        agent = self._project.agents.load(asked.agent)
        model = roster.ready(agent.model, tape.state.models.name)
        limit = roster.prompt_limit(model)
        pinned = Blob.of(canonical(self._allowed(asked.agent, tape)))
        path = f"{above.parent.path}/{asked.call}" if above.parent else asked.call
        parent = kinds.ParentRef(tape.run_id, asked.call, depth_below(above), ask.answered, path)
        started = kinds.RunStarted(
            run_id=asked.run,
            skill=f"agent:{asked.agent}",
            skill_hash=asked.skill_hash,
            input=asked.input,
            model=model,
            answer_form=roster.answer_form(model),
            prompt_limit=None if limit == PromptLimit() else limit,
            settings=pinned.hash,
            rules=versions.RULES,
            wording=versions.WORDING,
            ops=asked.ops,
            parent=parent,
            imported=above.imported,
            history=asked.history,
            hooks=self._project.hook_names,
            ask=ask,
        )
        opened = new_tape(self.journal, started, (pinned,), now=self.clock.now())
        return await self._execute(opened, None, tape, model, _NoUser(self._project.people))

    async def resume(self, run: str, agent: str, tape: Tape) -> RunState:
        """Continue a conversation until it waits or stops, within what the run that asks may use now."""
        loaded = load_run(self.journal, run)
        compiled = self._project.reader.compile_skill(loaded.started)
        check_ops(run, compiled.skill, self._project.ops)
        self._pass_on_limits(loaded.state, compiled.settings, self._allowed(agent, tape, loaded.state))
        model = self._project.roster.ready(None, loaded.state.models.name)
        resumption = Resumption(self._project.ids.new())
        return await self._execute(loaded.tape, resumption, tape, model, _NoUser(self._project.people))

    def _allowed(self, agent: str, tape: Tape, state: RunState | None = None) -> RunSettings:
        """Return the settings of a conversation: what the run that asks has left, and what its own agent may use."""
        above = tape.state.started
        assert above is not None
        compiled = self._project.reader.compile_skill(above, tape.content)
        settings = sub_run_settings(tape.state, compiled.settings)
        limits = settings.limits
        used = (state.models.usage.total, state.active // SECOND) if state is not None else (0, 0)
        tokens = None if limits.tokens is None else limits.tokens + used[0]
        seconds = None if limits.run_seconds is None else limits.run_seconds + used[1]
        own = self._project.agents.load(agent).budget.tokens
        if own is not None:
            tokens = own if tokens is None else min(own, tokens)
        return replace(settings, limits=replace(limits, tokens=tokens, run_seconds=seconds))

    def _pass_on_limits(self, state: RunState, recorded: RunSettings, allowed: RunSettings) -> None:
        for name in ("tokens", "run_seconds"):
            value: int | None = getattr(allowed.limits, name)
            if limit_of(state, recorded, name) != value:
                self.journal.post(state.run_id, RaiseLimit(name, value))

    def say(self, run: str, text: str, by: str, ask: kinds.AskRef) -> None:
        """Put a message into the inbox of a conversation."""
        self.journal.post(run, Say(text, by, ask))
        self._polling.notify(run)

    def abort(self, run: str, reason: str) -> None:
        """Abort the turn in progress of a conversation and of those that its agent opened, and cancel its skills."""
        row = self.journal.find(run)
        if row is not None:
            abort_turns(self.journal, self._polling, [row, *descendants(self.journal, run)], reason)


def abort_turns(journal: Journal, polling: InboxPolling, rows: list[RunRow], reason: str) -> None:
    """Abort the turn in progress of each conversation that an agent opened, and cancel the other runs."""
    for row in rows:
        if row.status in ENDED:
            continue
        is_conversation = opened_by(journal, row.run_id) is not None
        if is_conversation and row.wait is not None and row.wait.is_message:
            continue
        journal.post(row.run_id, AbortTurn(reason) if is_conversation else Cancel(reason))
        polling.notify(row.run_id)


def opened_by(journal: Journal, run: str) -> kinds.AskRef | None:
    """Return the message of another agent that opened a conversation; `None` if a user opened it."""
    first = next(iter(journal.read(run)), None)
    body = decode(first) if first is not None else None
    return body.ask if isinstance(body, kinds.RunStarted) else None


def depth_below(started: kinds.RunStarted) -> int:
    """Return the nesting depth of the runs that a run starts."""
    return (started.parent.depth if started.parent else 0) + 1
