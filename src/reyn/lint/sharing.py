"""Rules on what the phases of a skill share: the state of a run, and the transcripts of conversations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reyn.errors import Finding, codes
from reyn.lint.nodes import phase_branches
from reyn.skills.arrivals import accepted_by
from reyn.skills.fan_out import result_type
from reyn.skills.flow import paths_read
from reyn.skills.graph import is_known
from reyn.skills.names import is_valid_name
from reyn.skills.state_fields import STATE_ROOT, state_name
from reyn.skills.step_types import PythonCall

if TYPE_CHECKING:
    from reyn.skills import LoadResult
    from reyn.skills.values import Phase, Skill
    from reyn.vocabulary import Vocabulary


_AT = ("conversation", "transcript")


def fields_of_state(skill: Skill, loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report fields that no artifact changes, and phases that read the state although only branches run them."""
    if not all(is_known(skill, node) for node in skill.graph):
        return
    produced = _produced_types(skill) if skill.state else set()
    document = loaded.document()
    for name, field in skill.state.items():
        if field.type in skill.types and field.type not in produced:
            message = f"no node produces `{field.type}`, so `{STATE_ROOT}.{name}` never changes"
            key = "latest" if field.latest else "append" if field.append else "sum"
            fix = f"follow one of {', '.join(f'`{one}`' for one in sorted(produced))}"
            yield document.finding(codes.UNPRODUCED_STATE, message, STATE_ROOT, name, key, fix=fix, severity="warning")
    for name in phase_branches(skill):
        if name in skill.phases and (read := _read_of_state(skill.phases[name])):
            message = f"only branches run `{name}`, each as a run of its own, which has no `{read}`"
            fix = "read it at the node that runs the branches, and pass it with the items"
            yield loaded.document(name).finding(codes.BAD_STATE, message, fix=fix)


def _produced_types(skill: Skill) -> set[str]:
    """Return the types of the artifacts of a run: its input, and what its nodes can send on."""
    found = {one.name for one in skill.entry_inputs}
    for node, targets in skill.graph.items():
        made = result_type(skill, node)
        rules = skill.rules.get(node, ())
        found |= {made.name} if made is not None else set()
        found |= {rule.artifact.name for rule in rules if rule.artifact is not None}
        if made is None and not rules:
            found |= {one.name for target in targets for one in accepted_by(skill, target)}
    return found


def _read_of_state(phase: Phase) -> str:
    """Return a field of the state that a phase reads; empty if it reads none."""
    applied = [getattr(step, "apply", step) for step in phase.preprocessor]
    python = [path for step in applied if isinstance(step, PythonCall) for path in step.reads]
    paths = (path for step in phase.preprocessor for path in paths_read(step))
    return next((path for path in (*phase.reads, *python, *paths) if state_name(path)), "")


def shared_transcripts(skill: Skill, loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report phases that share a transcript with no other phase, and phases that give one transcript several sizes."""
    sharing: dict[str, list[str]] = {}
    branches = phase_branches(skill)
    for name, phase in skill.phases.items():
        transcript = phase.conversation.transcript if phase.conversation is not None else ""
        if transcript and not is_valid_name(transcript):
            message, fix = (
                f"`{transcript}` is not a valid name of a transcript",
                "use a letter, then letters and digits",
            )
            yield loaded.document(name).finding(codes.BAD_TRANSCRIPT, message, *_AT, fix=fix)
        elif transcript and name in branches:
            message = f"only branches run phase `{name}`; each has a transcript of its own"
            fix = "remove `transcript`, or make the phase a node of the graph"
            yield loaded.document(name).finding(codes.BAD_TRANSCRIPT, message, *_AT, fix=fix, severity="warning")
        elif transcript:
            sharing.setdefault(transcript, []).append(name)
    for transcript, names in sharing.items():
        if len(names) == 1:
            message, fix = f"no other phase has the transcript `{transcript}`", "correct the name, or remove it"
            yield loaded.document(names[0]).finding(codes.BAD_TRANSCRIPT, message, *_AT, fix=fix, severity="warning")
        sizes = {name: found.max_tokens for name in names if (found := skill.phases[name].conversation) is not None}
        first = names[0]
        for name in names[1:]:
            if sizes[name] != sizes[first]:
                message = (
                    f"the transcript `{transcript}` has `max_tokens` {sizes[name]} in phase `{name}` and "
                    f"{sizes[first]} in phase `{first}`"
                )
                fix = "write the same `max_tokens` in all phases that share the transcript"
                yield loaded.document(name).finding(codes.BAD_TRANSCRIPT, message, "conversation", fix=fix)
