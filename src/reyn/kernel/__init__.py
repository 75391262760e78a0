"""Execute one run: `run_orchestrator` → `phase_executor` → `llm_call_recorder` over `run_state`.

`driver` steps the visits and recalls or performs their effects; `tape` holds the events. `reyn.runtime` claims runs and
decides whether a stopped run continues; `reyn.runs` operates on recorded runs.
"""
