"""Load Python objects that the configuration or the command line names as `package.module:attribute`."""

from __future__ import annotations

import importlib
import re
import sys
from typing import TYPE_CHECKING, Any

from reyn.errors import ModuleUnloadable

if TYPE_CHECKING:
    from pathlib import Path

_NAME = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
REFERENCE = re.compile(rf"{_NAME}:{_NAME}")


def load_attribute(name: str, *folders: Path) -> Any:
    """Import a module and return one of its attributes.

    Args:
        name: Module and attribute, as `package.module:attribute`.
        *folders: Where the module may be, after the installed ones: files in these folders replace no installed module.

    Raises:
        ModuleUnloadable: The module cannot be imported, or has no such attribute.
    """
    module_name, _, path = name.partition(":")
    sys.path += [folder for folder in dict.fromkeys(map(str, folders)) if folder not in sys.path]
    importlib.invalidate_caches()
    try:
        value: Any = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ModuleUnloadable(f"cannot import `{module_name}`: {type(error).__name__}: {error}") from error
    for part in path.split("."):
        if not hasattr(value, part):
            raise ModuleUnloadable(f"module `{module_name}` has no `{path}`")
        value = getattr(value, part)
    return value
