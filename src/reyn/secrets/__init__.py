"""Secrets: stores, resolution of handles, and scrubbing of values from text.

Configuration, frames, arguments and events contain handles (`secret://NAME`, `env://VARIABLE`). Code that needs a value
calls `Secrets.resolve` immediately before use; from then on `Secrets.scrubber` replaces that value in any text.
"""

from reyn.secrets.handles import handle_of, is_handle, name_of
from reyn.secrets.keyring_store import KeyringStore
from reyn.secrets.port import Store
from reyn.secrets.scrubber import Scrubber
from reyn.secrets.secrets import SecretEntry, Secrets, StoreResult, open_secrets
from reyn.secrets.stores import EnvironmentStore, FileStore, MemoryStore

__all__ = [
    "EnvironmentStore",
    "FileStore",
    "KeyringStore",
    "MemoryStore",
    "Scrubber",
    "SecretEntry",
    "Secrets",
    "Store",
    "StoreResult",
    "handle_of",
    "is_handle",
    "name_of",
    "open_secrets",
]
