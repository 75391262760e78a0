"""Project configuration: `reyn.yaml`, `reyn.local.yaml`, `REYN_*` variables and flags as one validated `Config`.

Values of secrets are never part of it; it holds references such as `secret://NAME`, which `reyn.secrets` resolves.
"""

from reyn.config.load import load_config
from reyn.config.origins import Setting, explain_config
from reyn.config.values import Config, Limits, ModelSettings, RunSettings, Sizes

__all__ = ["Config", "Limits", "ModelSettings", "RunSettings", "Setting", "Sizes", "explain_config", "load_config"]
