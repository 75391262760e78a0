"""Secrets: stores, resolution of handles, and scrubbing of values from text.

Configuration, frames, arguments and events contain handles (`secret://NAME`, `env://VARIABLE`). Code that needs a value
calls `Secrets.resolve_for` immediately before it sends it to a server; that checks the origins that the secret is bound
to. `Secrets.scrubber` replaces known values in any text, and finds them.
"""

from reyn.secrets.handles import MemoryOrigins, handle_of, is_handle, origin_of, secret_name, validate_origin
from reyn.secrets.scrubber import Scrubber
from reyn.secrets.secrets import SecretEntry, Secrets, open_secrets
from reyn.secrets.stores import EnvironmentStore, FileStore, KeyringStore, MemoryStore

__all__ = [
    "EnvironmentStore",
    "FileStore",
    "KeyringStore",
    "MemoryOrigins",
    "MemoryStore",
    "Scrubber",
    "SecretEntry",
    "Secrets",
    "handle_of",
    "is_handle",
    "open_secrets",
    "origin_of",
    "secret_name",
    "validate_origin",
]
