"""JSON Schema: validation and schema transformations.

`compile_schema` turns a schema into a `Validator` that never opens a file or a socket. `lenient` relaxes a schema for
the default mode. `references` and `flattening` simplify schemas for engines that understand less than a validator does.
"""

from reyn.jsonschema.references import Schema, has_references, lenient
from reyn.jsonschema.validation import (
    DRAFT_7,
    PatternUnsupported,
    ReferencesExpand,
    SchemaInvalid,
    Validator,
    compile_schema,
)

__all__ = [
    "DRAFT_7",
    "PatternUnsupported",
    "ReferencesExpand",
    "Schema",
    "SchemaInvalid",
    "Validator",
    "compile_schema",
    "has_references",
    "lenient",
]
