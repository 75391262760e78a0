"""The command `env`: Python environments with packages for the scripts and python steps of skills."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from reyn.cli.groups import group
from reyn.cli.interrupts import exit_on_sigterm
from reyn.cli.options import json_option
from reyn.cli.output import coloured, reyn_command, table_lines
from reyn.cli.project import open_existing_project
from reyn.cli.writer import Report, out
from reyn.texts import counted

if TYPE_CHECKING:
    from reyn.packages import EnvironmentStatus

_SHORT = 12
"""The digits of a hash in a list."""


@group(for_names="show", epilog="Example: reyn env make office")
def env_command() -> None:
    """Make, list and show environments: Python packages for the scripts and python steps of skills.

    `environments` in reyn.yaml declares them; a skill names one. Only `make` and `lock` use the network.
    """


@env_command.command(epilog="Example: reyn env make office")
@click.argument("name")
@click.option("--allow-source", is_flag=True, help="Build packages without a wheel, which runs their code.")
@json_option
def make(name: str, allow_source: bool) -> Report:
    """Make the environment NAME with the packages of its file.

    pip installs exactly the listed hashes, from the package index that it is configured for, and wheels only. If it
    fails, the environment that exists stays as it is.
    """
    project = open_existing_project().project
    with exit_on_sigterm():
        made = project.make_environment(name, allow_source=allow_source, report=lambda step: out.note(f"  {step} …"))
    return Report(_fields(made), [f"{name}: OK", *_lines(made)])


@env_command.command(epilog="Example: reyn env lock office")
@click.argument("name")
@json_option
def lock(name: str) -> Report:
    """Write the requirements file of NAME, with versions and hashes.

    Reads the file beside it that ends with `.in`, which has the names of packages, such as `pypdf>=5`. The hashes are
    those of the wheels for this Python on this machine.
    """
    project = open_existing_project().project
    with exit_on_sigterm():
        lines = project.lock_environment(name, report=lambda step: out.note(f"  {step} …"))
    file = project.config.environments[name].requirements
    text = [
        f"{file}: {counted(len(lines), 'package')}",
        *(f"  {line.partition(' ')[0]}" for line in lines),
    ]
    return Report({"file": file, "requirements": lines}, [*text, f"next: {reyn_command('env', 'make', name)}"])


@env_command.command("list", epilog="Example: reyn env list --json")
@json_option
def list_environments() -> Report:
    """List the environments of the project, and whether they can be used."""
    found = open_existing_project().project.environments()
    rows = [
        (
            one.name,
            coloured(one.state),
            one.python or "-",
            str(len(one.packages)),
            one.content[:_SHORT] or "-",
            one.source,
        )
        for one in found
    ]
    header = ("NAME", "STATE", "PYTHON", "PACKAGES", "CONTENT", "FROM")
    reasons = [f"{one.name}: {one.reason}" for one in found if one.reason]
    none = ["no environments; declare one under `environments` in reyn.yaml"]
    return Report([_fields(one) for one in found], [*table_lines(header, rows), *reasons] if rows else none)


@env_command.command(epilog="Example: reyn env show office")
@click.argument("name")
@json_option
def show(name: str) -> Report:
    """Show the packages, the content and the state of NAME."""
    found = open_existing_project().project.environment(name)
    return Report(_fields(found), [f"{name}: {found.state}", *_lines(found)])


def _fields(status: EnvironmentStatus) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(status)
    return fields


def _lines(status: EnvironmentStatus) -> list[str]:
    lines = [f"  {status.reason}"] if status.reason else []
    lines += [f"  from {status.source}, Python {status.python or 'unknown'}"]
    lines += [f"  content {status.content}", f"  in {status.folder}"] if status.content else []
    return [*lines, *(f"  {one.name} {one.version}" for one in status.packages)]
