"""Commands that print what they return, and groups of them that suggest a command for an unknown one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from reyn.cli.writer import Report, out, wants_json

SYNONYMS = {
    "add": "new",
    "cat": "show",
    "check": "lint",
    "continue": "resume",
    "create": "new",
    "del": "rm",
    "describe": "show",
    "find": "search",
    "forget": "rm",
    "get": "show",
    "history": "runs",
    "info": "show",
    "init": "new",
    "log": "show",
    "logs": "show",
    "ls": "list",
    "ps": "runs",
    "reply": "answer",
    "retry": "resume",
    "start": "run",
    "status": "runs",
    "stop": "cancel",
    "talk": "chat",
    "unset": "rm",
    "validate": "lint",
    "view": "show",
}
"""Words that other programs use for commands of Reyn."""
_REMOVE = ("rm", "delete", "remove")
"""Names of a command that removes something. A group that has one of them takes all of them."""
_MAX_LISTED = 10
"""The number of commands up to which an error lists them all."""


class ReportCommand(click.Command):
    """A command that returns a `Report`, or prints by itself and returns its exit code."""

    def invoke(self, ctx: click.Context) -> int:
        return _print_result(super().invoke(ctx))


def _print_result(result: Any) -> int:
    """Print what a command returned; of an empty list, also that there is no project."""
    code = out.report(result)
    if isinstance(result, Report) and result.value == [] and not wants_json():
        from reyn.cli.project import print_missing_project

        print_missing_project()
    return code


def command(name: str | None = None, **attributes: Any) -> Callable[[Callable[..., Any]], ReportCommand]:
    """Return a decorator that makes a function a command."""
    return click.command(name, ReportCommand, **attributes)


class CommandGroup(click.Group):
    """A group of commands.

    Args:
        for_names: The command that a name without a command is probably meant for: `reyn permissions hello`.
    """

    command_class = ReportCommand

    def __init__(self, *args: Any, for_names: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._for_names = for_names

    def invoke(self, ctx: click.Context) -> Any:
        return _print_result(super().invoke(ctx))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is not None or cmd_name not in _REMOVE:
            return found
        return next((self.commands[name] for name in _REMOVE if name in self.commands), None)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"no such command `{name}`; {self._suggest(ctx, name)}".rstrip("; "))
        return super().resolve_command(ctx, args)

    def _suggest(self, ctx: click.Context, name: str) -> str:
        from reyn.documents import nearest

        known = self.list_commands(ctx)
        synonym = SYNONYMS.get(name)
        if f"--{name}" in {option for parameter in self.get_params(ctx) for option in parameter.opts}:
            return f"did you mean `{ctx.command_path} --{name}`?"
        if ctx.parent is not None and isinstance(ctx.parent.command, click.Group):
            other = ctx.parent.command.get_command(ctx.parent, name)
            if isinstance(other, click.Group) and ctx.info_name in other.list_commands(ctx):
                return f"did you mean `{ctx.parent.command_path} {name} {ctx.info_name}`?"
        near = f"did you mean `{synonym}`?" if synonym in known else nearest(name, known)
        if not near and self._for_names:
            near = f"did you mean `{ctx.command_path} {self._for_names} {name}`?"
        if near or len(known) > _MAX_LISTED:
            return near
        names = ", ".join(f"`{command}`" for command in known)
        return f"the {'only command is' if len(known) == 1 else 'commands are'} {names}"


def group(**attributes: Any) -> Callable[[Callable[..., Any]], CommandGroup]:
    """Return a decorator that makes a function a group of commands."""
    return click.group(None, CommandGroup, **attributes)
