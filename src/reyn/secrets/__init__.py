"""Which secrets did the operator store, and how do they stay out of everything else?

Config, frames, arguments and events hold a handle, `secret://NAME`. Whoever needs the value asks `Secrets.get` at the
last moment, and what was handed out is from then on scrubbed from any text that its `Scrubber` is shown.
"""

from reyn.secrets.handles import handle_of, is_handle, name_of
from reyn.secrets.keyring_store import KeyringStore
from reyn.secrets.port import Store
from reyn.secrets.scrubber import Scrubber
from reyn.secrets.secrets import Held, Kept, Secrets, open_secrets
from reyn.secrets.stores import EnvironmentStore, FileStore, MemoryStore

__all__ = [
    "EnvironmentStore",
    "FileStore",
    "Held",
    "Kept",
    "KeyringStore",
    "MemoryStore",
    "Scrubber",
    "Secrets",
    "Store",
    "handle_of",
    "is_handle",
    "name_of",
    "open_secrets",
]
