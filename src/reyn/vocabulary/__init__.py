"""Specifications of ops and permission keys, as data.

A `Vocabulary` is a frozen value that the loader, lint, the frame, the contract and the docs read. Its op
specifications come from the op table in `reyn.ops`; nothing here executes anything.
"""

from reyn.vocabulary.error_names import is_error_name
from reyn.vocabulary.specs import (
    EFFECT_ORDER,
    PERMISSIONS,
    EffectClass,
    OpForm,
    OpSpec,
    OpTarget,
    Vocabulary,
    form_name,
)

__all__ = [
    "EFFECT_ORDER",
    "PERMISSIONS",
    "EffectClass",
    "OpForm",
    "OpSpec",
    "OpTarget",
    "Vocabulary",
    "form_name",
    "is_error_name",
]
