"""Reading a skill and asking every rule about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.lint import instructions, requests, structure
from reyn.ops import standard_ops
from reyn.skills import read_skill

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.errors import Finding
    from reyn.skills import Library
    from reyn.vocabulary import Vocabulary

RULES = (
    structure.older_form,
    structure.not_performed,
    structure.folder_name,
    structure.unreachable_phases,
    structure.unions_alike,
    structure.schema_typos,
    requests.unknown_permissions,
    requests.missing_requests,
    requests.unused_requests,
    requests.python_steps,
    instructions.op_syntax,
    instructions.other_phases,
    instructions.field_lists,
    instructions.literals,
)


def lint_skill(folder: Path, library: Library | None = None, vocabulary: Vocabulary | None = None) -> list[Finding]:
    """Return every finding about a skill, in the order of its files and lines."""
    vocabulary = vocabulary or standard_ops().vocabulary
    reading = read_skill(folder, vocabulary, library)
    found = {*reading.findings}
    for rule in RULES:
        found.update(rule(reading, vocabulary))
    return sorted(found)
