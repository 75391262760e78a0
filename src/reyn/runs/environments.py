"""The environments with packages of a run: whether this machine has them, and whether they have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.errors import EnvironmentChanged, EnvironmentUnavailable
from reyn.journal import kinds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reyn.kernel.world.services import Services
    from reyn.packages import PackageEnvironments
    from reyn.skills import Skill

_SHORT = 12
"""The digits of a hash in a message."""


def check_environments(services: Services, skill: Skill) -> None:
    """Check that this machine has the environments that a skill and its sub-skills name.

    Raises:
        EnvironmentUnavailable: It does not have one.
    """
    for name in skill.environments:
        services.performer.environments.packages.find(name)


def changed_environment(services: Services, used: kinds.EnvironmentRef | None) -> kinds.EnvironmentRef | None:
    """Return the environment that code of a run used last, if its packages have changed since."""
    if used is None:
        return None
    try:
        found = services.performer.environments.packages.find(used.name)
    except EnvironmentUnavailable:  # the skill may name another one by now
        return None
    return None if found.content == used.content else kinds.EnvironmentRef(found.name, found.content)


def change_text(used: kinds.EnvironmentRef, current: str) -> str:
    """Return the message about an environment whose content has changed."""
    return (
        f"{EnvironmentChanged.code}: the environment `{used.name}` has changed since the run used it: "
        f"{used.content[:_SHORT]} is now {current[:_SHORT]}"
    )


def change_warnings(used: kinds.EnvironmentRef | None, current: kinds.EnvironmentRef | None) -> list[str]:
    """Return the warning that a run continues with other packages than it used before, if it does."""
    return [change_text(used, current.content)] if used is not None and current is not None else []


def environment_notes(packages: PackageEnvironments, used: Iterable[kinds.EnvironmentRef]) -> tuple[str, ...]:
    """Return a message for each environment of a run that this machine does not have as it was."""
    notes = []
    for one in used:
        try:
            content = packages.find(one.name).content
        except EnvironmentUnavailable as error:
            notes.append(f"{error.code}: {error.message}")
            continue
        if content != one.content:
            notes.append(change_text(one, content))
    return tuple(dict.fromkeys(notes))
