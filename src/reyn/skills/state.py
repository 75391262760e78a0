"""The state of a run: check what skill.md declares, and derive its types from those of the artifacts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reyn.documents import check_keys, nearest
from reyn.errors import codes
from reyn.expressions.types import ANY, DOUBLE, INT, Type, kind_names, list_of, object_of, of_schema, union, words_for
from reyn.skills.fan_out import schema_part
from reyn.skills.front_matter import FRONT_MATTER
from reyn.skills.state_fields import MAX_STATE_ITEMS, STATE_ROOT, StateField, state_name

if TYPE_CHECKING:
    from reyn.documents import Document
    from reyn.jsonschema import Schema
    from reyn.skills.artifacts import Artifacts
    from reyn.skills.folder import SkillFolder
    from reyn.skills.values import ArtifactType, Skill

_NUMBERS = frozenset({"int", "double", "null"})
_FORMS = "write `{latest: TYPE}`, `{append: TYPE, max: 50}` or `{sum: TYPE.data.FIELD}`"


class StateReader:
    """Reads `state` of one skill, and collects findings about it.

    Attributes:
        fields: The fields. One that has errors has no form, and any value.
        types: The artifact types that the fields follow.
        schema: The schema of the state; `None` if the skill has none.
    """

    def __init__(
        self, document: Document, fields: Mapping[str, StateField], folder: SkillFolder, artifacts: Artifacts
    ) -> None:
        self._document, self._folder = document, folder
        broken = dict.fromkeys(_broken_fields(document), StateField())  # reported with their keys
        self.fields = {**fields, **broken}
        self.types: dict[str, ArtifactType] = {}
        for name, field in self.fields.items():
            if name not in broken and self._is_consistent(name, field):
                found = artifacts.get(document, field.type, STATE_ROOT, name, _key(field))
                if found is not None:
                    self.types[found.name] = found
                    self._check_number(name, field, found)
        self.schema: Schema | None = state_schema(self.fields, self.types) if self.fields else None

    def check_read(self, document: Document, name: str, *path: str | int) -> None:
        """Report a field of the state that a phase or a step reads and that the skill does not declare."""
        if state_name(name) not in self.fields:
            fix = nearest(state_name(name), self.fields) or f"declare it under `{STATE_ROOT}` in skill.md"
            self._folder.report(document, codes.BAD_STATE, f"the skill has no `{name}`", *path, fix=fix)

    def _report(self, message: str, *path: str | int, fix: str) -> None:
        self._folder.report(self._document, codes.BAD_STATE, message, STATE_ROOT, *path, fix=fix)

    def _is_consistent(self, name: str, field: StateField) -> bool:
        """Report keys of a field that exclude each other or are missing."""
        forms = [form for form in (field.latest, field.append, field.sum) if form]
        if not name.isascii() or not name.isidentifier():
            fix = "start with a letter, then use letters, digits and `_`: expressions read it as `state.NAME`"
            self._report(f"`{name}` is not a valid name of a field of the state", name, fix=fix)
        elif len(forms) != 1:
            found = "has several of" if forms else "has none of"
            self._report(f"`{name}` {found} `latest`, `append` and `sum`", name, fix=_FORMS)
        elif field.append and field.max is None:
            message = f"`{name}` keeps every `{field.append}` of the run: its size has no bound"
            self._report(message, name, fix=f"add `max:` with a number up to {MAX_STATE_ITEMS:,}, such as `max: 50`")
        elif field.max is not None and not field.append:
            self._report(f"`max` of `{name}` has no effect: only `append` keeps several", name, "max", fix="remove it")
        elif field.sum and (len(field.number_path) < 2 or field.number_path[0] != "data"):
            self._report(f"`{field.sum}` does not name a number", name, "sum", fix="write `TYPE.data.FIELD`")
        else:
            return True
        return False

    def _check_number(self, name: str, field: StateField, artifact: ArtifactType) -> None:
        """Report a sum over a field that does not exist, or that may not be a number."""
        if not field.sum:
            return
        found = _at(of_schema(artifact.schema), field.number_path[1:])
        if not found:
            known = sorted({key for kind in of_schema(artifact.schema) for key in kind.fields})
            fix = nearest(field.number_path[1], known) or f"name a field of `{artifact.name}` that is a number"
            self._report(f"`{artifact.name}` has no `{'.'.join(field.number_path)}`", name, "sum", fix=fix)
        elif not kind_names(found) <= _NUMBERS or not kind_names(found) - {"null"}:
            message = f"`{field.sum}` is {words_for(found)}; a sum needs a number"
            self._report(message, name, "sum", fix="write `type: number` or `type: integer` in the artifact's schema")


def _broken_fields(document: Document) -> list[str]:
    """Return the fields whose keys have errors."""
    fields = document.value.get(STATE_ROOT) if isinstance(document.value, dict) else None
    parts = {name: document.part(STATE_ROOT, name) for name in fields} if isinstance(fields, dict) else {}
    return [name for name, part in parts.items() if check_keys(part, StateField, FRONT_MATTER)]


def _key(field: StateField) -> str:
    return "latest" if field.latest else "append" if field.append else "sum"


def _at(found: Type, words: Sequence[str]) -> Type:
    """Return the type at a path; empty if nothing can be there."""
    for word in words:
        parts: list[Type] = []
        for kind in found:
            if kind.name == "any":
                return ANY
            if word in kind.fields:
                parts.append(kind.fields[word]())
            elif kind.name == "map" and kind.extra is not None:
                parts.append(kind.extra())
        found = union(parts)
    return found


def state_schema(fields: Mapping[str, StateField], types: Mapping[str, ArtifactType]) -> Schema:
    """Return a schema of the state, in which steps look up paths."""
    properties: dict[str, Any] = {}
    for name, field in fields.items():
        data = schema_part(types[field.type]) if field.type in types else True
        properties[name] = (
            {"type": "number"} if field.sum else {"type": "array", "items": data} if field.append else data
        )
    return {"type": "object", "properties": properties, "additionalProperties": False}


def state_type(skill: Skill) -> Type:
    """Return the type of the state in expressions: lists and sums are always there, `latest` when there was one."""
    fields: dict[str, Type] = {}
    inputs = {one.name for one in skill.entry_inputs}
    missing: set[str] = set()
    for name, field in skill.state.items():
        data = of_schema(skill.types[field.type].schema) if field.type in skill.types else ANY
        if field.sum:
            fields[name] = DOUBLE if "double" in kind_names(_at(data, field.number_path[1:])) else INT
        else:
            fields[name] = list_of(data) if field.append else data
        if field.latest and inputs != {field.type}:
            missing.add(name)
    return object_of(fields, required=fields.keys() - missing)


def fields_of_type(skill: Skill) -> dict[str, dict[str, StateField]]:
    """Return the fields that an artifact changes by itself, by its type. `latest` follows from the artifact alone."""
    found: dict[str, dict[str, StateField]] = {}
    for name, field in skill.state.items():
        if not field.latest:
            found.setdefault(field.type, {})[name] = field
    return found


def state_names(paths: Iterable[str], skill: Skill) -> list[str]:
    """Return the fields of the state that paths lead into, each once."""
    return list(dict.fromkeys(name for path in paths if (name := state_name(path)) in skill.state))
