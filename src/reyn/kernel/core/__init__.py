"""The core of the kernel: the fold, the tape, the driver, effects and the orchestrator. Pure; no I/O."""
