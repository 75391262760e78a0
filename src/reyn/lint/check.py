"""Run every lint rule on a skill.

A rule is a function of the loaded skill and the vocabulary that yields findings; `LINT_RULES` and `SKILL_RULES` list
them. `check_skill` is also applied to a skill before it runs, so that `reyn lint` and a run find the same errors.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from reyn.lint import (
    acts,
    decisions,
    errors_of_nodes,
    handoffs,
    instructions,
    nodes,
    requests,
    sharing,
    steps,
    structure,
)
from reyn.ops import standard_ops
from reyn.skills import Library, LoadResult, read_shared, read_skill

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.config.values import PythonSandbox
    from reyn.errors import Finding
    from reyn.vocabulary import Vocabulary

LINT_RULES = (
    structure.older_form,
    structure.schema_typos,
    structure.unread_files,
    structure.split_values,
    requests.step_arguments,
    requests.unknown_permissions,
    requests.malformed_requests,
    handoffs.unproduced_handoff_fields,
    handoffs.oversized_instructions,
    instructions.contract_syntax,
    instructions.phase_names,
    instructions.drawn_edges,
    instructions.field_lists,
    instructions.literals,
    instructions.unchecked,
)
"""Rules on the files of a skill, which may have errors."""
SKILL_RULES = (
    structure.features_without_support,
    structure.unreachable_phases,
    structure.ambiguous_unions,
    structure.edge_texts,
    structure.unproduced_reads,
    requests.missing_requests,
    requests.unused_requests,
    requests.python_steps,
    acts.fills,
    acts.asked_ops,
    decisions.rules_of_nodes,
    decisions.conditions_of_edges,
    steps.values_of_steps,
    nodes.fan_outs,
    sharing.fields_of_state,
    errors_of_nodes.errors_of_nodes,
    sharing.shared_transcripts,
)
"""Rules on the parts of a skill that could be read."""


def lint_skill(
    folder: Path,
    library: Library | None = None,
    vocabulary: Vocabulary | None = None,
    python: PythonSandbox = "auto",
    classes: Collection[str] | None = None,
) -> list[Finding]:
    """Return every finding about a skill, sorted by position.

    Args:
        folder: The skill's folder.
        library: Where sub-skills and shared files are found; by default, the project around the folder.
        vocabulary: The known ops; by default, the built-in and installed ones.
        python: The sandbox of python steps that the operator has configured.
        classes: The model classes that the configuration defines; `None` if it is not known.
    """
    vocabulary = vocabulary or standard_ops().vocabulary
    return check_skill(read_skill(folder, vocabulary, library), vocabulary, python, classes)


def lint_shared(library: Library, vocabulary: Vocabulary) -> list[Finding]:
    """Return every finding about the shared phases and artifacts of a project, sorted by position."""
    return check_skill(read_shared(vocabulary, library), vocabulary)


def check_skill(
    loaded: LoadResult,
    vocabulary: Vocabulary,
    python: PythonSandbox = "auto",
    classes: Collection[str] | None = None,
) -> list[Finding]:
    """Return every finding about a skill that was read; see `lint_skill`."""
    findings: set[Finding] = set()
    for rule in LINT_RULES:
        findings.update(rule(loaded, vocabulary))
    if loaded.partial is not None:
        for skill_rule in SKILL_RULES:
            findings.update(skill_rule(loaded.partial, loaded, vocabulary))
        findings.update(requests.python_sandboxes(loaded.partial, loaded, python))
        for name, result in loaded.sub_skills.items():
            if not result.errors:  # the loader reports its own
                findings.update(structure.sub_skill_errors(loaded, name, check_skill(result, vocabulary, python)))
    if classes is not None:
        findings.update(structure.unknown_classes(loaded, classes))
    found = instructions.summed(loaded, findings.union(loaded.folder.findings))  # a rule may have read further files
    return sorted(found)
