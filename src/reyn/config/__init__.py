"""What did the operator set?

`reyn.yaml`, then `reyn.local.yaml`, then `REYN_*`, then flags become one `Config`; each value remembers its origin.
"""

from reyn.config.load import load_config
from reyn.config.origins import Setting, explain_config
from reyn.config.values import Config, Limits, ModelSettings, RunSettings, Sizes

__all__ = ["Config", "Limits", "ModelSettings", "RunSettings", "Setting", "Sizes", "explain_config", "load_config"]
