"""What performing effects needs, the same for all runs of a runtime, and the callbacks of one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from reyn.kernel.world.hooks import hook_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.config import RunSettings
    from reyn.config.values import AgentsSettings
    from reyn.context import NormalizedMessageList
    from reyn.context.budget_log import BudgetLog
    from reyn.journal import Blob, Event, Journal, kinds
    from reyn.journal.commits import SharedCommits
    from reyn.kernel.runtime_types import Clock, Ids, People
    from reyn.kernel.visit.compiled_skill import CompiledSkill
    from reyn.kernel.world.budgets import Budgets
    from reyn.kernel.world.hooks import Hook
    from reyn.kernel.world.inbox import InboxPolling
    from reyn.kernel.world.op_performer import OpPerformer
    from reyn.models import Delta
    from reyn.models.roster import Roster
    from reyn.ops import OpTable
    from reyn.skills import Skill
    from reyn.skills.agents import Agents

    Listener = Callable[[Event], None]
    OnDelta = Callable[[Delta], None]
    OutputCheck = Callable[[Any], tuple[str, str]]
    """Returns the JSON path and the message of an error in a final output; both are empty if it is valid."""
    History = tuple[tuple[kinds.HistoryPart, ...], tuple[Blob, ...]]


class Observers(NamedTuple):
    """The callbacks of one call."""

    listener: Listener | None = None
    on_delta: OnDelta | None = None
    check: OutputCheck | None = None


@dataclass(frozen=True, kw_only=True)
class Services:
    """What performing effects needs.

    Attributes:
        owner: The runtime that the code of an op finds as `RunScope.owner`.
        agent_limits: The limits of messages between agents.
        load: Loads a skill by name.
        agent_skill: Loads the skill of a conversation with an agent.
        compile_skill: Compiles the skill of a run from the run's own copies.
        store_history: Returns the parts of a history, and the content that the journal does not have.
    """

    owner: object
    journal: Journal
    commits: SharedCommits
    clock: Clock
    ids: Ids
    people: People
    polling: InboxPolling
    roster: Roster
    budgets: Budgets
    budget_log: BudgetLog
    ops: OpTable
    performer: OpPerformer
    hooks: tuple[Hook, ...]
    agents: Agents
    agent_limits: AgentsSettings
    load: Callable[[str], Skill]
    agent_skill: Callable[[str], Skill]
    compile_skill: Callable[[kinds.RunStarted, Callable[[str], bytes]], CompiledSkill]
    store_history: Callable[[NormalizedMessageList], History]

    @property
    def hook_names(self) -> tuple[str, ...]:
        """The names of the hooks, as runs record them."""
        return tuple(map(hook_name, self.hooks))

    def settings_of(self, started: kinds.RunStarted, content: Callable[[str], bytes]) -> RunSettings:
        """Return the settings of a run."""
        return self.compile_skill(started, content).settings
