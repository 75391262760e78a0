"""`reyn lint`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec
from msgspec.structs import replace

from reyn.cli.files import relative_path
from reyn.cli.output import clean, json_option, print_json
from reyn.cli.project import configured_project, project_root, skill_name

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.errors import Finding
    from reyn.skills import Library
    from reyn.vocabulary import Vocabulary


@click.command(epilog="Example: reyn lint hello --json")
@click.argument("skills", nargs=-1, metavar="[SKILL|agent:NAME]...")
@click.option("--fix", is_flag=True, help="Rewrite skills of the older form; write edge texts. Comments are preserved.")
@json_option
def command(skills: tuple[str, ...], fix: bool, as_json: bool) -> int:
    """Check skills and agents; print errors and warnings with file, line, column, code and fix.

    Without an argument, every skill and every agent of the project is checked. SKILL is a name or a path. A file that
    cannot be parsed hides findings that depend on it. The exit code is 1 if there are errors; warnings do not count.
    Paths are relative to the current folder, or absolute outside of it. `reyn explain CODE` explains a finding.
    """
    from reyn.config import PythonSettings
    from reyn.lint import lint_agent, lint_skill
    from reyn.ops import standard_ops
    from reyn.skills import Library
    from reyn.skills.agents import PREFIX, Agents
    from reyn.skills.resolve import is_path

    project, library = configured_project(), Library(project_root())
    vocabulary = (standard_ops() if project is None else project.project.ops).vocabulary
    python = (PythonSettings() if project is None else project.project.config.python).sandbox
    agents = Agents(project_root())
    names = [name.removeprefix(PREFIX) for name in skills if name.startswith(PREFIX)]
    folders = [(library.find(skill_name(name)), is_path(name)) for name in skills if not name.startswith(PREFIX)]
    if not skills:
        names = [name for name in agents if agents.path(name) is not None]
        folders = [(folder, False) for _, shelf, folder in library if shelf != "stdlib"]
    # A skill at a path is resolved against the project that contains it.
    libraries = {folder: Library.around(folder) if by_path else library for folder, by_path in folders}
    unfixed = _fix(libraries, vocabulary, as_json) if fix else 0
    # Models that need trust are configured, too.
    classes = None if project is None else {*project.project.config.models, *project.project.trust.ignored_models}
    reports = []
    for folder, around in libraries.items():
        findings = lint_skill(folder, around, vocabulary, python, classes if around is library else None)
        placed = [replace(finding, file=_path_of(finding.file, folder, around)) for finding in findings]
        reports.append(_Report(folder.name, placed))
    known_skills = [name for name, _, _ in library]
    for name in names:
        findings = lint_agent(agents, name, known_skills, vocabulary, classes)
        placed = [replace(finding, file=relative_path(project_root() / finding.file)) for finding in findings]
        reports.append(_Report(f"{PREFIX}{name}", placed))
    errors = sum(finding.severity == "error" for report in reports for finding in report.findings)
    if as_json:
        print_json([msgspec.to_builtins(f) | {"skill": report.name} for report in reports for f in report.findings])
        return 1 if errors or unfixed else 0
    for report in reports:
        _print(report)
    if not reports:
        click.echo("no skills in this project; `reyn lint PATH` checks one elsewhere")
    return 1 if errors or unfixed else 0


def _fix(libraries: dict[Path, Library], vocabulary: Vocabulary, as_json: bool) -> int:
    """Rewrite skills; return the number of those that cannot be rewritten."""
    from reyn.cli.hints import full_hint
    from reyn.errors import FixImpossible
    from reyn.lint import fix_skill

    unfixed = 0
    for folder, library in libraries.items():
        try:
            files = fix_skill(folder, library, vocabulary)
        except FixImpossible as error:
            unfixed += 1
            click.echo(clean(f"{folder.name}: {error.code} {error.message}"), err=True)
            click.echo(f"  {clean(full_hint(error.code, error.hint))}", err=True)
            continue
        for file in files:
            click.echo(clean(f"rewrote {_path_of(file, folder, library)}"), err=as_json)
    return unfixed


class _Report(NamedTuple):
    """The findings about a skill or an agent."""

    name: str
    findings: list[Finding]


def _path_of(file: str, folder: Path, library: Library) -> str:
    """Return the path of a file that a finding about a skill names: one of the skill, or a shared one."""
    from reyn.skills.names import find_path

    own = find_path(folder, file)
    shared = [parent.parent for parent in library.shared if file.startswith(f"{parent.name}/")]
    if own is None and shared:
        return relative_path(find_path(shared[0], file) or shared[0] / file)
    return relative_path(own or folder / file)


def _print(report: _Report) -> None:
    errors = sum(finding.severity == "error" for finding in report.findings)
    warnings = sum(finding.severity == "warning" for finding in report.findings)
    counts = f"{_count(errors, 'error')}, {_count(warnings, 'warning')}" if errors or warnings else "OK"
    click.echo(f"{clean(report.name)}: {counts}")
    for finding in report.findings:
        for line in str(finding).split("\n"):
            click.echo(clean(line))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
