"""What a skill asks for that this version reads, checks and pins, but does not perform. Shrinks with every version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.skills.values import DEFAULT_OPS, is_skill_node

if TYPE_CHECKING:
    from reyn.skills.values import Skill


def unperformed(skill: Skill) -> list[str]:
    """Each as words that name the place."""
    asks = [f"the node `{node}` in the graph" for node in skill.graph if is_skill_node(node)]
    if skill.postprocessor is not None:
        asks.append("`postprocessor` in skill.md")
    if skill.on_phase_failure != "fail":
        asks.append(f"`on_phase_failure: {skill.on_phase_failure}` in skill.md")
    if skill.context is not None:
        asks.append("`context` in skill.md")
    for name, phase in skill.phases.items():
        if phase.allowed_ops and phase.allowed_ops != DEFAULT_OPS:
            asks.append(f"`allowed_ops: [{', '.join(phase.allowed_ops)}]` in phase `{name}`")
        keys = ("preprocessor", "context", "model_class")
        asks += [f"`{key}` in phase `{name}`" for key in keys if getattr(phase, key) not in (None, ())]
    return asks
