"""Rules on the transcripts that the phases of a skill share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reyn.errors import Finding, codes
from reyn.lint.nodes import phase_branches
from reyn.skills.names import is_valid_name

if TYPE_CHECKING:
    from reyn.skills import LoadResult, Skill
    from reyn.vocabulary import Vocabulary

_PATH = ("conversation", "transcript")


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
            yield loaded.document(name).finding(codes.BAD_TRANSCRIPT, message, *_PATH, fix=fix)
        elif transcript and name in branches:
            message = f"only branches run phase `{name}`; each has a transcript of its own"
            fix = "remove `transcript`, or make the phase a node of the graph"
            yield loaded.document(name).finding(codes.BAD_TRANSCRIPT, message, *_PATH, fix=fix, severity="warning")
        elif transcript:
            sharing.setdefault(transcript, []).append(name)
    for transcript, names in sharing.items():
        if len(names) == 1:
            message, fix = f"no other phase has the transcript `{transcript}`", "correct the name, or remove it"
            yield loaded.document(names[0]).finding(codes.BAD_TRANSCRIPT, message, *_PATH, fix=fix, severity="warning")
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
