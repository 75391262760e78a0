"""How does a person reach it?

Thin: words become calls of the runtime, results become text or JSON. No rule lives here.
"""

from __future__ import annotations


def main() -> None:
    from reyn.cli.app import run_app

    raise SystemExit(run_app())
