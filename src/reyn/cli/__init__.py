"""The command line.

Commands translate arguments into calls of `reyn.runtime` and print the results as text or JSON. They hold no rules.
"""

from __future__ import annotations

from reyn.cli.interrupts import ExitGuard


def main() -> None:
    """Run the command line of this process and exit with its code."""
    guard = ExitGuard()
    guard.install()
    from reyn.cli.app import run_app

    raise SystemExit(guard.run(run_app))
