"""Run programs in the backend that isolates processes on this machine. Without one, nothing is executed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from reyn.errors import SandboxUnavailable
from reyn.sandbox.bubblewrap import Bubblewrap
from reyn.sandbox.landlock import Landlock
from reyn.sandbox.supervision import Access, Outcome, ProgramLimits, StopSignal, supervise

if TYPE_CHECKING:
    from reyn.sandbox.process import Backend

BackendName = Literal["auto", "bubblewrap", "landlock"]
BACKENDS: tuple[Backend, ...] = (Bubblewrap(), Landlock())
"""In the order in which `auto` tries them."""


def choose_backend(name: BackendName = "auto") -> Backend:
    """Return the first usable backend, or the one with this name.

    Raises:
        SandboxUnavailable: None of them can be used; the message says why for each.
        SandboxStartFailed: The machine lacks something at the moment.
    """
    candidates = [backend for backend in BACKENDS if name in ("auto", backend.name)]
    for backend in candidates:
        if not backend.problem:
            return backend
    problems = "; ".join(f"{backend.name}: {backend.problem}" for backend in candidates)
    raise SandboxUnavailable(f"no process sandbox is available ({problems})")


def run_program(
    backend: Backend,
    argv: tuple[str, ...],
    access: Access,
    limits: ProgramLimits,
    stdin: bytes = b"",
    stop: StopSignal | None = None,
) -> Outcome:
    """Run a program in a backend until it ends or exceeds a limit."""
    return supervise(backend.start(argv, access, limits), stdin, limits, stop)
