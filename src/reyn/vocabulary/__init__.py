"""Which words exist?

Op kinds, step kinds and permission keys as data: one frozen `Vocabulary`, handed to whoever needs it. A runtime may
extend its own copy; there is no global registry. Performs nothing and decides nothing.
"""

from reyn.vocabulary.forms import Effect, OpForm
from reyn.vocabulary.words import STANDARD, OpSpec, PermissionKey, StepSpec, Vocabulary

__all__ = ["STANDARD", "Effect", "OpForm", "OpSpec", "PermissionKey", "StepSpec", "Vocabulary"]
