"""Which words exist?

Op kinds, step kinds and permission keys as data: one frozen `Vocabulary`, handed to whoever needs it. A runtime may
extend its own copy; there is no global registry. Performs nothing and decides nothing.
"""

from reyn.vocabulary.words import STANDARD, Effect, OpSpec, PermissionKey, StepSpec, Vocabulary

__all__ = ["STANDARD", "Effect", "OpSpec", "PermissionKey", "StepSpec", "Vocabulary"]
