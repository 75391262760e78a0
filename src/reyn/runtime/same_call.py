"""Whether a call with the id of an existing run is the call that started it: then the run is continued or returned.

Everything is compared that a caller passes and the first request depends on. Files of the skill need not exist any
more, and may have changed: the run has its own copy.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reyn.context.histories import HISTORIES
from reyn.errors import RunIdTaken
from reyn.journal import Blob, canonical, digest, kinds
from reyn.skills.inputs import to_artifact
from reyn.skills.resolve import is_path

if TYPE_CHECKING:
    from reyn.context import NormalizedMessageList
    from reyn.kernel.world.services import Services
    from reyn.skills import Skill

_RESUME = "Use a new run id, or resume the run to continue it with its own instructions."


class RunCall(NamedTuple):
    """What a caller passes to a run; `OSRuntime.run` documents it."""

    skill: str | Skill
    input: Any
    history: NormalizedMessageList
    images: tuple[tuple[kinds.ImageRef, ...], tuple[Blob, ...]] = ((), ())
    sender: str = ""


def check_same_call(call: RunCall, started: kinds.RunStarted, services: Services) -> None:
    """Check that a call is the one that started a run.

    Raises:
        RunIdTaken: It has another skill, input, history or images, or a `Skill` object with other instructions.
    """
    run_id, compiled = started.run_id, services.compile_skill(started)
    if not _is_skill_of(started, call.skill, services):
        name = call.skill if isinstance(call.skill, str) else call.skill.name
        raise RunIdTaken(f"run `{run_id}` is a run of skill `{started.skill}`, not of `{name}`")
    artifact = canonical(to_artifact(call.input, compiled.skill, strict=compiled.settings.strict))
    if (started.input.hash, started.images) != (digest(artifact), call.images[0]):
        raise RunIdTaken(f"run `{run_id}` was started with a different input")
    history, _ = services.store_history(call.history)
    if not HISTORIES.are_same(started.history, history, services.journal.blob):
        raise RunIdTaken(f"run `{run_id}` was started with a different history")
    # The instructions of a function contain the values of its template; those of a chat, a system message, too.
    if not isinstance(call.skill, str) and _instructions(call.skill) != _instructions(compiled.skill):
        raise RunIdTaken(f"run `{run_id}` was started with different instructions", hint=_RESUME)


def source_of(skill: str | Skill, root: Path) -> str | None:
    """Return the path of a skill that was given as a path, relative to the project if it is inside."""
    if not isinstance(skill, str) or not is_path(skill):
        return None
    place = Path(skill).resolve()
    return str(place.relative_to(root)) if place.is_relative_to(root) else str(place)


def _is_skill_of(started: kinds.RunStarted, skill: str | Skill, services: Services) -> bool:
    """Return whether a name or path names the skill of a run."""
    if not isinstance(skill, str):
        function = services.compile_skill(started).skill.function
        return started.skill == skill.name and function == skill.function
    if not is_path(skill):
        return skill == started.skill
    if started.source:
        return source_of(skill, services.root) == started.source
    place = Path(skill).resolve()
    return (place.parent if place.name == "skill.md" else place).name == started.skill


def _instructions(skill: Skill) -> str:
    """Return the instructions of the entry phase of a skill; a node that is a skill has none."""
    phase = skill.phases.get(skill.entry)
    return phase.instructions if phase is not None else ""
