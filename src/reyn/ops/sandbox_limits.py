"""The limits of one program or python step: the requested values, capped by the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reyn.ops.op import Env
    from reyn.sandbox import ProgramLimits


def limits_of(env: Env, seconds: float) -> ProgramLimits:
    """Return the limits for a program that may take so many seconds, if the operator allows as many."""
    from reyn.sandbox import ProgramLimits

    most = env.sandbox
    return ProgramLimits(
        seconds=min(seconds, most.seconds),
        memory_bytes=most.memory_bytes,
        output_bytes=most.output_bytes,
        processes=most.processes,
        file_bytes=most.file_bytes,
    )
