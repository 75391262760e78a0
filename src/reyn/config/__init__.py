"""Configuration: the user's own, `reyn.yaml`, `reyn.local.yaml`, `REYN_*` variables and flags as one `Config`.

Values of secrets are never part of it; it holds references such as `secret://NAME`, which `reyn.secrets` resolves.
"""

from reyn.config.load import Sources, load_config, load_sources
from reyn.config.origins import Setting, explain_config
from reyn.config.owner import journal_key
from reyn.config.user import TrustEntry, UserConfig, UserConfigFile, user_config
from reyn.config.values import Config, Limits, ModelSettings, PythonSettings, RunSettings, SandboxSettings, Sizes

__all__ = [
    "Config",
    "Limits",
    "ModelSettings",
    "PythonSettings",
    "RunSettings",
    "SandboxSettings",
    "Setting",
    "Sizes",
    "Sources",
    "TrustEntry",
    "UserConfig",
    "UserConfigFile",
    "explain_config",
    "journal_key",
    "load_config",
    "load_sources",
    "user_config",
]
