"""The names of artifacts become their types: the skill's own file, then a shared one; what is wrong is a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.documents import nearest
from reyn.jsonschema import DRAFT_7, SchemaInvalid, compile_schema
from reyn.skills import codes
from reyn.skills.dialect import is_wrapped
from reyn.skills.names import is_usable_name
from reyn.skills.values import USER_MESSAGE, ArtifactType

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.documents import Document
    from reyn.skills.folder import SkillFolder

ANY_OBJECT = ArtifactType("artifact", {"type": "object"})


class Artifacts:
    """Each is read once. `add` takes a finding: document, code, message, place and fix."""

    def __init__(self, folder: SkillFolder, add: Callable[..., None]) -> None:
        self._folder = folder
        self._add = add
        self._known: dict[str, ArtifactType | None] = {USER_MESSAGE.name: USER_MESSAGE}

    def get(self, source: Document, name: str, key: str) -> ArtifactType | None:
        if name not in self._known:
            self._known[name] = self._read_artifact(source, name, key)
        return self._known[name]

    def _read_artifact(self, source: Document, name: str, key: str) -> ArtifactType | None:
        file = f"artifacts/{name}.yaml"
        if self._folder.is_older and not name:
            return ANY_OBJECT
        if not is_usable_name(name) or not self._folder.exists(file):
            fix = nearest(name, [*self._folder.known("artifacts", ".yaml"), USER_MESSAGE.name])
            self._add(source, codes.UNKNOWN_ARTIFACT, f"the artifact `{name}` has no file `{file}`", key, fix=fix)
            return None
        document = self._folder.artifact(file)
        if document is None:
            return None
        if not isinstance(document.value, dict):
            self._add(document, codes.BAD_SCHEMA, "must be a JSON Schema, a mapping")
            return None
        return self._to_artifact(document, name)

    def _to_artifact(self, document: Document, name: str) -> ArtifactType | None:
        wrapped = is_wrapped(document.value)
        schema = document.value["schema"] if wrapped else document.value
        if wrapped and document.value["name"] != name:
            self._add(document, codes.WRONG_NAME, f"`name` is `{document.value['name']}`, not `{name}`", "name")
        if wrapped and document.value.get("wrapped", True) is not True:
            message = "an artifact without an envelope is not performed"
            self._add(document, "RYN103", message, "wrapped", fix="Remove `wrapped`.")
        try:
            schema = self._checked(schema)
        except SchemaInvalid as error:
            place = (*(("schema",) if wrapped else ()), *error.place)
            self._add(document, codes.BAD_SCHEMA, f"is not a usable JSON Schema: {error}", *place)
            return None
        # One description, beside the schema: the model would otherwise be shown it twice.
        told = document.value.get("description") or (schema.get("description") if isinstance(schema, dict) else None)
        bare = (
            {key: part for key, part in schema.items() if key != "description"} if isinstance(schema, dict) else schema
        )
        return ArtifactType(name, bare, str(told or ""))

    def _checked(self, schema: Any) -> Any:
        """A usable schema. One of an older skill that is draft 7 and not 2020-12 says so from here on."""
        try:
            compile_schema(schema)
        except SchemaInvalid:
            if not self._folder.is_older or not isinstance(schema, dict) or "$schema" in schema:
                raise
            schema = {"$schema": DRAFT_7, **schema}
            compile_schema(schema)
        return schema
