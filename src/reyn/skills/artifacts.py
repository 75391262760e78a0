"""Resolve artifact names to types: the skill's own file first, then a shared one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.documents import Document, nearest
from reyn.errors import codes
from reyn.jsonschema import SchemaInvalid, compile_schema
from reyn.skills.names import is_valid_name
from reyn.skills.values import BUILT_IN_TYPES, ArtifactType

if TYPE_CHECKING:
    from collections.abc import Collection

    from reyn.jsonschema import Schema
    from reyn.skills.folder import SkillFolder

ANY_OBJECT = ArtifactType("artifact", {"type": "object"})
"""Stands for a type that could not be read."""


class Artifacts:
    """The artifact types that a skill can name. Each file is read once.

    `elsewhere` are the names of types that those who use the folder may have, so that they are not unknown.
    """

    def __init__(self, folder: SkillFolder, elsewhere: Collection[str] = ()) -> None:
        self._elsewhere = elsewhere
        self._folder = folder
        self._types: dict[str, ArtifactType | None] = {**BUILT_IN_TYPES}

    def get(self, source: Document, name: str, *path: str | int) -> ArtifactType | None:
        """Return the type with a name; report it at `path` of `source` if there is none."""
        file = f"artifacts/{name}.yaml"
        if name not in self._types and (not is_valid_name(name) or not self._folder.exists(file)):
            if name not in self._elsewhere:
                others = [one for one in self._folder.own_files("artifacts", "") if one.partition(".")[0] == file[:-5]]
                fix = unread_fix(others[0]) if others else ""
                fix = fix or nearest(name, [*self._folder.names("artifacts", ".yaml"), *self._types])
                message = f"unknown artifact `{name}`: no file `{file}`"
                self._folder.report(source, codes.UNKNOWN_ARTIFACT, message, *path, fix=fix)
            return None
        if name not in self._types:
            self._types[name] = self._read(file, name)
        return self._types[name]

    def define(self, name: str, schema: Schema, source: Document, node: str) -> ArtifactType:
        """Return the type with a name: that of its file, or a derived one if there is no file."""
        if self._folder.exists(f"artifacts/{name}.yaml"):
            return self.get(source, name, "nodes", node, "as") or ANY_OBJECT
        derived = self._types.get(name) or ArtifactType(name, schema)
        self._types[name] = derived
        return derived

    def check_built_in(self) -> None:
        """Report files of the skill that redefine a built-in type."""
        for name, built_in in BUILT_IN_TYPES.items():
            file = f"artifacts/{name}.yaml"
            document = self._folder.read(file) if self._folder.path_of(file).is_file() else None
            if document is None:
                continue
            if _without_annotations(document.value) == _without_annotations(built_in.schema):
                message, fix = f"`{name}` is built in; this file is ignored", "delete the file"
                self._folder.report(document, codes.WRONG_NAME, message, fix=fix, severity="warning")
            else:
                message, fix = (
                    f"`{name}` is built in and cannot be redefined",
                    "rename the file and every reference to it",
                )
                self._folder.report(document, codes.WRONG_NAME, message, fix=fix)

    def _read(self, file: str, name: str) -> ArtifactType | None:
        document = self._folder.read(file)
        if document is None:
            return None
        if not isinstance(document.value, dict):
            self._folder.report(document, codes.BAD_SCHEMA, "expected a JSON Schema, which is a mapping")
            return None
        return self._to_type(document, name)

    def _to_type(self, document: Document, name: str) -> ArtifactType | None:
        schema = document.value
        try:
            compile_schema(schema)
        except SchemaInvalid as error:
            self._folder.report(document, error.code, f"invalid JSON Schema: {error}", *error.place)
            return None
        # The frame shows the description next to the schema, so that it is removed from the schema.
        bare = {key: part for key, part in schema.items() if key != "description"}
        return ArtifactType(name, bare, str(schema.get("description") or ""))


def unread_fix(file: str) -> str:
    """Return what to do with a file of a skill whose ending Reyn does not read."""
    place, _, ending = file.partition(".")
    wanted = f"{place}.md" if file.startswith("phases/") else f"{place}.yaml"
    if ending in ("yml", "json", "markdown"):
        return f"rename `{file}` to `{wanted}`"
    what = "its front matter and instructions" if wanted.endswith(".md") else "its schema"
    return f"write {what} to `{wanted}`; Reyn does not read `{file}`"


_ANNOTATIONS = {"$schema", "additionalProperties", "description", "examples", "title"}


def _without_annotations(schema: Any) -> Any:
    """Return what two schemas must share to accept the same fields."""
    if not isinstance(schema, dict):
        return schema
    bare = {key: part for key, part in schema.items() if key not in _ANNOTATIONS}
    if isinstance(bare.get("properties"), dict):
        bare["properties"] = {name: _without_annotations(part) for name, part in bare["properties"].items()}
    return bare
