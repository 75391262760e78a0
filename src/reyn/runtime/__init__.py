"""The public API: `OSRuntime` opens a project, starts runs and operates on recorded ones; `SyncRuntime` is synchronous.

The runtime connects the packages below it and implements no rules of its own. `os_runtime` is what a user calls,
`executor` and `forks` execute runs. `rt.project`, `rt.permissions` and `rt.conversations` are in the modules of these
names, `rt.runs` is in `reyn.runs`. `sync_form` derives `SyncRuntime`.
"""

from reyn.kernel.runtime_types import RunResult
from reyn.runtime.os_runtime import OSRuntime
from reyn.runtime.sync_runtime import SyncRuntime

__all__ = ["OSRuntime", "RunResult", "SyncRuntime"]
