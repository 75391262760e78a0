"""Configuration: the user's own, `reyn.yaml`, `reyn.local.yaml`, `REYN_*` variables and flags as one `Config`.

Values of secrets are never part of it; it holds references such as `secret://NAME`, which `reyn.secrets` resolves.
"""

from reyn.config.load import ConfigSources, Setting, explain_config, load_config, load_sources
from reyn.config.models import ModelSettings
from reyn.config.user import TrustEntry, UserConfig, UserConfigFile, journal_key, user_config
from reyn.config.values import Config, Limits, PythonSettings, RunSettings, SandboxSettings, Sizes

__all__ = [
    "Config",
    "ConfigSources",
    "Limits",
    "ModelSettings",
    "PythonSettings",
    "RunSettings",
    "SandboxSettings",
    "Setting",
    "Sizes",
    "TrustEntry",
    "UserConfig",
    "UserConfigFile",
    "explain_config",
    "journal_key",
    "load_config",
    "load_sources",
    "user_config",
]
