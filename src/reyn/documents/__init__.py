"""Files that users write: read them, parse YAML and JSON with positions, and check their values."""

from reyn.documents.checking import Codes, check_keys, fields_of, key_path, nearest, nearest_hint, usable_keys
from reyn.documents.document import (
    Document,
    DocumentError,
    JsonError,
    KeyPath,
    Position,
    Severity,
    decode_json,
    read_error,
    read_raw,
    read_text,
)
from reyn.documents.yaml_text import is_plain_text, parse_front_matter, parse_yaml, plain_scalar

__all__ = [
    "Codes",
    "Document",
    "DocumentError",
    "JsonError",
    "KeyPath",
    "Position",
    "Severity",
    "check_keys",
    "decode_json",
    "fields_of",
    "is_plain_text",
    "key_path",
    "nearest",
    "nearest_hint",
    "parse_front_matter",
    "parse_yaml",
    "plain_scalar",
    "read_error",
    "read_raw",
    "read_text",
    "usable_keys",
]
