"""The targets by name."""

from __future__ import annotations

from importlib import import_module

from tests.fuzz import answers, archives, content, faults, imports, mcp, rules, servers, skills, weights
from tests.fuzz.harness import Target

TARGETS: dict[str, Target] = {
    "answers": answers.target,
    "archives": archives.target,
    "skills": skills.target,
    "servers": servers.target,
    "faults": faults.target,
    "content": content.target,
    "rules": rules.target,
    "imports": imports.target,
    "weights": weights.target,
    "mcp": mcp.target,
}
_COMMANDS = ("authoring", "checking", "recorded", "status")
_LAZY = ("anyio._backends._asyncio", "httpcore", "httpx", "mcp", "openai", "regex", "sqlite3")


def preload() -> None:
    """Import what Reyn imports lazily, once, before cases are forked: it would be half of their time."""
    for name in (*_LAZY, *(f"reyn.cli.commands.{command}" for command in _COMMANDS)):
        try:
            import_module(name)
        except ImportError:
            continue
    servers.certificates()
