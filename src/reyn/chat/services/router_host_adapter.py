"""What an agent sees and may do when it routes a message: its role, ops, ranked skills, memories and other agents.

The kernel puts the same overviews into the prompt of each turn; this module shows them to people and programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.ops import Overview

if TYPE_CHECKING:
    from reyn.runtime import OSRuntime, SyncRuntime


class RouterView(msgspec.Struct, frozen=True):
    """What an agent sees and may do.

    Attributes:
        role: The agent's own instructions.
        instructions: The instructions of the phase that routes, the agent's own included.
        ops: The ops that it may use.
        overviews: What the ops can act on, by op kind, as the prompt shows it.
    """

    role: str
    instructions: str
    ops: tuple[str, ...]
    overviews: dict[str, Overview]

    @property
    def skills(self) -> tuple[str, ...]:
        """The skills that it can run, one line each; those that match the message best, if not all fit."""
        return self._lines("run_skill")

    @property
    def memories(self) -> tuple[str, ...]:
        """The memories that it is shown, one line each."""
        return self._lines("recall")

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents that it can ask, one line each."""
        return self._lines("ask_agent")

    def _lines(self, kind: str) -> tuple[str, ...]:
        return self.overviews[kind].lines if kind in self.overviews else ()


def router_view(runtime: OSRuntime | SyncRuntime, agent: str, message: str = "") -> RouterView:
    """Return what an agent would see if a user said something.

    Raises:
        AgentNotFound: There is no such agent.
        SkillInvalid: Its file has errors.
    """
    skill, role = runtime.services.agent_skill(agent), runtime.services.agents.load(agent).instructions
    phase = skill.phases[skill.entry]
    return RouterView(role, phase.instructions, phase.allowed_ops, runtime.project.overviews(skill, message))
