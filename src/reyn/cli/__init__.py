"""How does a person reach it?

Thin: words become calls of the runtime, results become text or JSON. No rule lives here.
"""

from __future__ import annotations


def main() -> None:
    try:
        from reyn.cli.app import run_app

        code = run_app()
    except KeyboardInterrupt:  # before anything was imported
        code = 130
    raise SystemExit(code)
