"""`reyn lint`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from reyn.cli.output import clean, json_option, print_json
from reyn.cli.project import project_root, skill_name

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.errors import Finding


@click.command(epilog="Example: reyn lint hello --json")
@click.argument("skills", nargs=-1, metavar="[SKILL]...")
@click.option("--fix", is_flag=True, help="Rewrite the older form; the skill stays the same, comments and all.")
@json_option
def command(skills: tuple[str, ...], fix: bool, as_json: bool) -> int:
    """Report every finding about SKILL, or about every skill of the project: file, line, column, code and fix.

    SKILL is a name or a path. The exit code is 1 if there are errors; warnings do not count.
    """
    from reyn.errors import FixImpossible
    from reyn.lint import fix_skill, lint_skill
    from reyn.skills import Library
    from reyn.skills.resolve import is_path

    library = Library(project_root())
    found_at = [(library.find(skill_name(name)), is_path(name)) for name in skills]
    if not skills:
        found_at = [(folder, False) for _, shelf, folder in library if shelf != "stdlib"]
    # A skill that is named by its path belongs to the project around it.
    libraries = {folder: Library.around(folder) if by_path else library for folder, by_path in found_at}
    unfixed = 0
    for folder, around in libraries.items() if fix else ():
        try:
            files = fix_skill(folder, around)
        except FixImpossible as error:
            unfixed += 1
            click.echo(f"{folder.name}: {clean(f'{error.code} {error.message}')}", err=True)
            click.echo(f"  {clean(error.hint)}", err=True)
            continue
        for file in files:
            click.echo(f"rewrote {folder.name}/{file}", err=as_json)
    found = {folder: lint_skill(folder, around) for folder, around in libraries.items()}
    errors = sum(finding.severity == "error" for findings in found.values() for finding in findings)
    if as_json:
        print_json(
            [msgspec.to_builtins(f) | {"skill": folder.name} for folder, findings in found.items() for f in findings]
        )
        return 1 if errors or unfixed else 0
    for folder, findings in found.items():
        _print(folder, findings)
    if not found:
        click.echo("no skills here; `reyn lint PATH` looks at one elsewhere")
    return 1 if errors or unfixed else 0


def _print(folder: Path, findings: list[Finding]) -> None:
    errors = sum(finding.severity == "error" for finding in findings)
    if not findings:
        click.echo(f"{folder.name}: nothing to say")
        return
    click.echo(f"{folder.name}: {_count(errors, 'error')}, {_count(len(findings) - errors, 'warning')}")
    for finding in findings:
        for line in f"{folder.name}/{finding}".split("\n"):
            click.echo(clean(line))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
