"""Execute foreign code in isolation: python steps, and programs that a model runs.

Two sandboxes are boundaries: Monty, which has no system, and a process in bubblewrap or under Landlock. Where neither
is available, nothing is executed. What a program may use is decided by `reyn.permissions`; this package enforces it.
"""

from reyn.sandbox.backends import choose_backend, run_program
from reyn.sandbox.monty import PythonFailed, PythonResult
from reyn.sandbox.python_steps import PythonStep, StepEnvironment, run_safe, run_unsafe
from reyn.sandbox.reaping import run_unconfined
from reyn.sandbox.supervision import Access, Outcome, PartialFolder, ProgramLimits, StopSignal, in_thread

__all__ = [
    "Access",
    "Outcome",
    "PartialFolder",
    "ProgramLimits",
    "PythonFailed",
    "PythonResult",
    "PythonStep",
    "StepEnvironment",
    "StopSignal",
    "choose_backend",
    "in_thread",
    "run_program",
    "run_safe",
    "run_unconfined",
    "run_unsafe",
]
