"""Check one source of the configuration: a file, a variable or the flags.

A required key may come from another source; `load` checks what depends on all sources together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.documents import Codes, check_keys

if TYPE_CHECKING:
    import msgspec

    from reyn.documents import Document
    from reyn.errors import Finding

CODE = "RYN701"
_CODES = Codes(unknown=CODE, wrong=CODE)


def check_document(document: Document, shape: type[msgspec.Struct]) -> list[Finding]:
    """Return every error in one configuration source."""
    if not isinstance(document.value, dict):
        return [document.finding(CODE, f"the file must be a mapping of keys to values, not {_name(document.value)}")]
    return check_keys(document, shape, _CODES)


def _name(value: object) -> str:
    return "a list" if isinstance(value, list) else repr(value)
