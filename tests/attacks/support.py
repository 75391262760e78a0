"""Programs in processes with limits of the system."""

from __future__ import annotations

import resource
import subprocess
import sys


def with_limits(program: str, *, seconds: int, megabytes: int) -> str:
    """Run a program with limits of the system; return what it prints."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=600, preexec_fn=limit, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout
