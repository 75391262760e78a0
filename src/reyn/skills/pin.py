"""Serialize the copy of a skill that a run records.

The copy is content-addressed. It keeps the author's order of phases and holds no path of the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from reyn.errors import FunctionInvalid, RunBlocked, surrogate_fault
from reyn.journal import Blob, check_json
from reyn.jsonschema import Schema, compile_schema
from reyn.skills.step_types import PythonCall, Validate
from reyn.skills.values import END, Skill, is_skill_node, skill_of


def pin(skill: Skill) -> Blob:
    """Serialize a skill. The hash of the copy identifies the skill.

    Raises:
        FunctionInvalid: A program built it from a text that is not valid Unicode; those in files are valid.
    """
    try:
        return skill.pinned
    except UnicodeEncodeError:
        fault = "; ".join(_invalid_texts(msgspec.to_builtins(skill), ""))
        raise FunctionInvalid(f"skill `{skill.name}`: {fault}", hint="Pass valid Unicode texts.") from None


def _invalid_texts(value: Any, path: str) -> Iterator[str]:
    """Yield the paths of texts that are not valid Unicode."""
    if isinstance(value, str):
        if fault := surrogate_fault(value):
            yield f"`{path}` has {fault}"
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _invalid_texts(key, path)
            yield from _invalid_texts(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _invalid_texts(item, f"{path}[{number}]")


def unpin(content: bytes) -> Skill:
    """Deserialize a pinned skill.

    Raises:
        RunBlocked: the content is not a skill that this version can read.
    """
    try:
        return msgspec.json.decode(content, type=Skill)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RunBlocked(f"the run's copy of its skill cannot be read: {error}") from error


_MAX_NESTING = 40


def check_pinned(skill: Skill) -> None:
    """Check a pinned skill that the loader of this project never saw: its parts exist and its schemas are valid.

    Raises:
        RunBlocked: the skill is not one that a loader produces.
    """
    for member in (skill, *skill.skills.values()):
        for node in (member.entry, *member.graph, *(name for names in member.graph.values() for name in names)):
            is_known = skill_of(node) in skill.skills if is_skill_node(node) else node in member.phases
            if node != END and not is_known:
                raise RunBlocked(f"the copy of skill `{member.name}` has no phase or skill `{node}`")
        if member.entry == END or any(not phase.inputs for phase in member.phases.values()):
            raise RunBlocked(f"the copy of skill `{member.name}` has no entry, or a phase without input")
        if any(field.type not in member.types for field in member.state.values()):
            raise RunBlocked(f"the copy of skill `{member.name}` has no type for a field of its state")
        for schema in _schemas(member):
            try:
                check_json(schema)
                compile_schema(schema)
            except ValueError as error:  # `SchemaInvalid` is one
                raise RunBlocked(f"the copy of skill `{member.name}` has an invalid schema: {error}") from error
        _check_entry(skill, member)


def _check_entry(skill: Skill, member: Skill) -> None:
    """Check that the entry of a skill is a phase, or a skill whose entry is one, and so on."""
    node = member.entry
    for _ in range(_MAX_NESTING):
        if not is_skill_node(node):
            return
        node = skill.skills[skill_of(node)].entry
    raise RunBlocked(f"the copy of skill `{member.name}` has an entry that leads to no phase")


def _schemas(skill: Skill) -> Iterator[Schema]:
    yield skill.final_output.schema
    yield from (artifact.schema for phase in skill.phases.values() for artifact in phase.inputs)
    if skill.postprocessor is not None:
        yield skill.postprocessor.output.schema
    for placed in skill.steps:
        match placed.applied:
            case Validate(schema=schema) | PythonCall(output_schema=schema):
                yield schema
