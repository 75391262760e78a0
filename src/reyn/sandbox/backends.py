"""Choose the backend that isolates processes on this machine. Without one, nothing is executed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from reyn.errors import SandboxUnavailable
from reyn.sandbox.bubblewrap import Bubblewrap
from reyn.sandbox.landlock import Landlock
from reyn.sandbox.supervision import supervise

if TYPE_CHECKING:
    from reyn.sandbox.supervision import Running, Stop
    from reyn.sandbox.values import Access, Limits, Outcome

BackendName = Literal["auto", "bubblewrap", "landlock"]


class Backend(Protocol):
    """A way to start an isolated process."""

    name: str

    @property
    def problem(self) -> str:
        """The reason why it cannot be used on this machine; empty if it can.

        Raises:
            SandboxStartFailed: It could not be found out, because the machine lacks something at the moment.
        """
        ...

    def start(self, argv: tuple[str, ...], access: Access, limits: Limits) -> Running:
        """Start a program that can use what `access` has, within `limits`.

        Raises:
            SandboxStartFailed: The machine lacks something at the moment.
        """
        ...


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
    limits: Limits,
    stdin: bytes = b"",
    stop: Stop | None = None,
) -> Outcome:
    """Run a program in a backend until it ends or exceeds a limit."""
    return supervise(backend.start(argv, access, limits), stdin, limits, stop)
