"""What happens next?

`OSRuntime` wires `run_orchestrator` → `phase_executor` → `llm_call_recorder` over `run_state`. The driver carries
effects out or recalls them; nothing else in here touches the world.
"""

from reyn.kernel.os_runtime import OSRuntime
from reyn.kernel.runtime_types import RunResult
from reyn.kernel.sync_runtime import SyncRuntime

__all__ = ["OSRuntime", "RunResult", "SyncRuntime"]
