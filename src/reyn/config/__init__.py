"""Configuration: the values of settings. `load` reads `reyn.yaml`, `user` the user's own configuration.

Values of secrets are never part of it; it holds references such as `secret://NAME`, which `reyn.secrets` resolves.
"""

from reyn.config.models import ModelSettings
from reyn.config.values import Config, Limits, PythonSettings, RunSettings, SandboxSettings, Sizes

__all__ = [
    "Config",
    "Limits",
    "ModelSettings",
    "PythonSettings",
    "RunSettings",
    "SandboxSettings",
    "Sizes",
]
