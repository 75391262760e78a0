"""Rules about the shape of a skill: phases nobody reaches, unions nobody can choose in, an older way of writing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.journal import canonical
from reyn.skills import codes
from reyn.skills.dialect import is_wrapped, step_lists

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.errors import Finding
    from reyn.skills import Reading
    from reyn.skills.values import ArtifactType
    from reyn.vocabulary import Vocabulary


def older_form(reading: Reading, _: Vocabulary) -> Iterator[Finding]:
    if not reading.folder.is_older:
        return
    for file in reading.folder.own("artifacts", ".yaml"):
        document = reading.folder.artifact(file)
        if document and is_wrapped(document.value):
            message = "holds its schema under `schema:`, the older form"
            yield document.finding(codes.OLDER, message, "schema", fix="Write the schema itself.", severity="warning")
    for file in ["skill.md", *reading.folder.own("phases", ".md")]:
        document = reading.folder.front(file)
        for place, steps in step_lists(document.value) if document else ():
            for index, step in enumerate(steps):
                if document and (*place, index, "type") in document.marks and isinstance(step, dict):
                    kind = next(iter(step))
                    message = f"the step is written with `type: {kind}`, the older form"
                    fix = f"Write `- {kind}: {{…}}`."
                    yield document.finding(codes.OLDER, message, *place, index, fix=fix, severity="warning")


def unreachable_phases(reading: Reading, _: Vocabulary) -> Iterator[Finding]:
    skill = reading.skill
    if skill is None:
        return
    for file in reading.folder.own("phases", ".md"):
        name = file.removeprefix("phases/").removesuffix(".md")
        document = reading.folder.front(file)
        if name not in skill.phases and document is not None:
            message = f"the phase `{name}` is never reached from `{skill.entry}`"
            fix = "Lead to it in `graph`, or delete the file."
            yield document.finding(codes.UNREACHABLE, message, fix=fix, severity="warning")


def unions_alike(reading: Reading, _: Vocabulary) -> Iterator[Finding]:
    """Two members with the same schema and the same description: the model has nothing to choose by."""
    for name, phase in reading.skill.phases.items() if reading.skill else ():
        seen: dict[bytes, ArtifactType] = {}
        for member in phase.inputs:
            other = seen.setdefault(_looks(member), member)
            document = reading.folder.front(f"phases/{name}.md")
            if other is not member and document is not None:
                message = f"a model cannot tell `{member.name}` from `{other.name}`"
                fix = "Give them different schemas or descriptions."
                yield document.finding(codes.SAME_UNION, message, "input", fix=fix)


def _looks(artifact: ArtifactType) -> bytes:
    return canonical([_bare(artifact.schema), artifact.description])


def _bare(schema: Any) -> Any:
    """A schema without its titles."""
    return {key: value for key, value in schema.items() if key != "title"} if isinstance(schema, dict) else schema
