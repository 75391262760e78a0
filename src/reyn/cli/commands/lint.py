"""`reyn lint`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from reyn.cli.output import clean, json_option, print_json
from reyn.cli.project import configured_project, project_root, skill_name

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.errors import Finding


@click.command(epilog="Example: reyn lint hello --json")
@click.argument("skills", nargs=-1, metavar="[SKILL]...")
@click.option("--fix", is_flag=True, help="Rewrite skills of the older form; write edge texts. Comments are preserved.")
@json_option
def command(skills: tuple[str, ...], fix: bool, as_json: bool) -> int:
    """Check SKILL, or every skill of the project; print errors and warnings with file, line, column, code and fix.

    SKILL is a name or a path. A file that cannot be parsed hides findings that depend on it. The exit code is 1 if
    there are errors; warnings do not count. `reyn explain CODE` explains a finding.
    """
    from reyn.cli.hints import full_hint
    from reyn.config import PythonSettings
    from reyn.errors import FixImpossible
    from reyn.lint import fix_skill, lint_skill
    from reyn.ops import standard_ops
    from reyn.skills import Library
    from reyn.skills.resolve import is_path

    project, library = configured_project(), Library(project_root())
    vocabulary = (standard_ops() if project is None else project.ops).vocabulary
    python = (PythonSettings() if project is None else project.config.python).sandbox
    folders = [(library.find(skill_name(name)), is_path(name)) for name in skills]
    if not skills:
        folders = [(folder, False) for _, shelf, folder in library if shelf != "stdlib"]
    # A skill at a path is resolved against the project that contains it.
    libraries = {folder: Library.around(folder) if by_path else library for folder, by_path in folders}
    unfixed = 0
    for folder, around in libraries.items() if fix else ():
        try:
            files = fix_skill(folder, around, vocabulary)
        except FixImpossible as error:
            unfixed += 1
            click.echo(clean(f"{folder.name}: {error.code} {error.message}"), err=True)
            click.echo(f"  {clean(full_hint(error.code, error.hint))}", err=True)
            continue
        for file in files:
            click.echo(clean(f"rewrote {folder.name}/{file}"), err=as_json)
    # Models that need trust are configured, too.
    classes = None if project is None else {*project.config.models, *project.trust.ignored_models}
    found = {
        folder: lint_skill(folder, around, vocabulary, python, classes if around is library else None)
        for folder, around in libraries.items()
    }
    errors = sum(finding.severity == "error" for findings in found.values() for finding in findings)
    if as_json:
        print_json(
            [msgspec.to_builtins(f) | {"skill": folder.name} for folder, findings in found.items() for f in findings]
        )
        return 1 if errors or unfixed else 0
    for folder, findings in found.items():
        _print(folder, findings)
    if not found:
        click.echo("no skills in this project; `reyn lint PATH` checks one elsewhere")
    return 1 if errors or unfixed else 0


def _print(folder: Path, findings: list[Finding]) -> None:
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = sum(finding.severity == "warning" for finding in findings)
    counts = f"{_count(errors, 'error')}, {_count(warnings, 'warning')}" if errors or warnings else "OK"
    click.echo(f"{clean(folder.name)}: {counts}")
    for finding in findings:
        for line in f"{folder.name}/{finding}".split("\n"):
            click.echo(clean(line))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
