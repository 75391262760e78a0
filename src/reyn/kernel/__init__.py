"""Execute one run: `run_orchestrator` → `phase_executor` → `llm_call_recorder` over `run_state`.

The driver performs effects or recalls their recorded results; nothing else in this package has side effects.
"""
