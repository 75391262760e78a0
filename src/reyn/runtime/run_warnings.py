"""The warnings of a run that no event records: about the project, the skill's requests, and the input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from reyn.documents import nearest
from reyn.errors import ConfigError
from reyn.journal.kinds import AGENT_PREFIX
from reyn.kernel.world.environments import requests_above, roots_of
from reyn.permissions import SkillRequests
from reyn.permissions.explain import explain_requests
from reyn.skills.inputs import missing_class_warnings, unknown_field_warnings
from reyn.skills.names import nfc

if TYPE_CHECKING:
    from reyn.journal import kinds
    from reyn.kernel.world.services import Services


def run_warnings(
    services: Services, started: kinds.RunStarted, content: Callable[[str], bytes], world: tuple[str, ...]
) -> Iterator[str]:
    """Yield the warnings of a run.

    Args:
        services: The services of the run.
        started: Its first event.
        content: Returns recorded content by its hash.
        world: What performing its effects warned of.
    """
    if services.trust.warning:
        yield services.trust.warning
    if services.config.tools:
        yield from services.ops.problems
    yield from budget_warnings(services)
    for name, why in services.roster.secrets().unreadable.items():
        yield f"`{name}` cannot be read, so its values are not removed from what is recorded: {why}"
    compiled = services.compile_skill(started, content)
    if compiled.skill.permissions or compiled.skill.skills:
        yield from ungranted_requests(services, started, content)
    yield from missing_class_warnings(compiled.skill, compiled.settings)
    if compiled.skill.has_open_input:
        yield from unknown_field_warnings(msgspec.json.decode(content(started.input.hash)), compiled.skill)
    yield from world


def budget_warnings(services: Services) -> Iterator[str]:
    """Yield a warning for each skill under `budgets.skill` whose name is probably misspelt."""
    if not services.config.budgets.skill:
        return
    known = [*services.skill_names, *(f"{AGENT_PREFIX}{name}" for name in services.agents)]
    for name in services.config.budgets.skill:
        # A name that resembles no other may be that of a function or of a skill that a program passes as a value.
        if nfc(name) not in known and (near := nearest(name, known)):
            yield f"`budgets.skill` has a budget for `{name}`, but there is no such skill; {near}"


def ungranted_requests(
    services: Services, started: kinds.RunStarted, content: Callable[[str], bytes]
) -> tuple[str, ...]:
    """Return a message for each request of a run and of its pinned sub-skills that no rule grants."""
    skill = services.compile_skill(started, content).skill
    above = requests_above(started, content)
    roots = roots_of(services.root, services.state_folder, "none")
    try:
        policy = services.read_policy()
    except ConfigError as error:  # the file has changed since the last op
        return (f"the permission rules cannot be read: {error.message}",)
    verdicts = [*explain_requests(skill.name, skill.permissions, policy, above, roots)]
    own = SkillRequests(skill.name, skill.permissions)
    for one in skill.skills.values():
        verdicts += explain_requests(one.name, one.permissions, policy, (own, *above), roots)
    return tuple(verdict.warning for verdict in verdicts if verdict.warning)
