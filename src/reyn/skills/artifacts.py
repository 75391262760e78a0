"""Resolve artifact names to types: the skill's own file first, then a shared one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from reyn.documents import nearest
from reyn.jsonschema import DRAFT_7, SchemaInvalid, compile_schema
from reyn.skills import codes
from reyn.skills.dialect import data_schema, is_wrapped
from reyn.skills.names import is_valid_name
from reyn.skills.values import USER_MESSAGE, ArtifactType

if TYPE_CHECKING:
    from reyn.documents import Document, Severity
    from reyn.skills.folder import SkillFolder

ANY_OBJECT = ArtifactType("artifact", {"type": "object"})
"""The input type of a phase of the older form without `input`."""


class Reporter(Protocol):
    """Records a finding at the position of a value in a document."""

    def __call__(
        self,
        document: Document,
        code: str,
        message: str,
        *path: str | int,
        fix: str = "",
        severity: Severity = "error",
    ) -> None: ...


class Artifacts:
    """The artifact types that a skill can name. Each file is read once."""

    def __init__(self, folder: SkillFolder, report: Reporter) -> None:
        self._folder = folder
        self._report = report
        self._types: dict[str, ArtifactType | None] = {USER_MESSAGE.name: USER_MESSAGE}

    def get(self, source: Document, name: str, *path: str | int) -> ArtifactType | None:
        """Return the type with a name; report it at `path` of `source` if there is none."""
        if name not in self._types:
            self._types[name] = self._read(source, name, path)
        return self._types[name]

    def check_user_message(self) -> None:
        """Report a file of the skill that redefines the built-in `user_message`."""
        file = f"artifacts/{USER_MESSAGE.name}.yaml"
        document = self._folder.artifact(file) if self._folder.path_of(file).is_file() else None
        if document is None:
            return
        schema = data_schema(document.value)[0] if isinstance(document.value, dict) else None
        if _without_annotations(schema) == _without_annotations(USER_MESSAGE.schema):
            message = f"`{USER_MESSAGE.name}` is built in; this file is ignored"
            self._report(document, codes.WRONG_NAME, message, fix="delete the file", severity="warning")
        else:
            message = f"`{USER_MESSAGE.name}` is built in and cannot be redefined"
            self._report(document, codes.WRONG_NAME, message, fix="rename the file and every reference to it")

    def _read(self, source: Document, name: str, path: tuple[str | int, ...]) -> ArtifactType | None:
        file = f"artifacts/{name}.yaml"
        if self._folder.is_older and not name:
            return ANY_OBJECT
        if not is_valid_name(name) or not self._folder.exists(file):
            fix = nearest(name, [*self._folder.names("artifacts", ".yaml"), USER_MESSAGE.name])
            self._report(source, codes.UNKNOWN_ARTIFACT, f"unknown artifact `{name}`: no file `{file}`", *path, fix=fix)
            return None
        document = self._folder.artifact(file)
        if document is None:
            return None
        if not isinstance(document.value, dict):
            self._report(document, codes.BAD_SCHEMA, "expected a JSON Schema, which is a mapping")
            return None
        return self._to_type(document, name)

    def _to_type(self, document: Document, name: str) -> ArtifactType | None:
        value = document.value
        if is_wrapped(value) and value["name"] != name:
            message = f"`name` is `{value['name']}`, but the file is `{name}.yaml`"
            self._report(document, codes.WRONG_NAME, message, "name", fix=f"write `name: {name}`")
        if is_wrapped(value) and value.get("wrapped", True) is False:
            message = "`wrapped: false` has no effect: an artifact always has `type` and `data`"
            fix = "remove `wrapped`"
            self._report(document, codes.OLDER_FORM, message, "wrapped", fix=fix, severity="warning")
        schema, path = data_schema(value)
        try:
            schema = self._compiled(schema)
        except SchemaInvalid as error:
            self._report(document, codes.schema_code(error), f"invalid JSON Schema: {error}", *path, *error.place)
            return None
        if not isinstance(schema, dict):
            return ArtifactType(name, schema, str(value.get("description") or ""))
        # The frame shows the description next to the schema, so that it is removed from the schema.
        description = value.get("description") or schema.get("description")
        bare = {key: part for key, part in schema.items() if key != "description"}
        return ArtifactType(name, bare, str(description or ""))

    def _compiled(self, schema: Any) -> Any:
        """Return a schema that compiles. One of the older form that is draft 7 gets the `$schema` of draft 7."""
        try:
            compile_schema(schema)
        except SchemaInvalid:
            if not self._folder.is_older or not isinstance(schema, dict) or "$schema" in schema:
                raise
            schema = {"$schema": DRAFT_7, **schema}
            compile_schema(schema)
        return schema


_ANNOTATIONS = {"$schema", "additionalProperties", "description", "examples", "title"}


def _without_annotations(schema: Any) -> Any:
    """Return what two schemas must share to accept the same fields."""
    if not isinstance(schema, dict):
        return schema
    bare = {key: part for key, part in schema.items() if key not in _ANNOTATIONS}
    if isinstance(bare.get("properties"), dict):
        bare["properties"] = {name: _without_annotations(part) for name, part in bare["properties"].items()}
    return bare
