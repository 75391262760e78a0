"""How does a person reach it?

Thin: words become calls of the runtime, results become text or JSON. No rule lives here.
"""

from __future__ import annotations

from reyn.cli.interrupts import ExitGuard


def main() -> None:
    guard = ExitGuard()
    guard.install()
    from reyn.cli.app import run_app

    raise SystemExit(guard.run(run_app))
