"""Commands that check skills, and exchange them: `lint`, `test`, `import-skill`, `export-skill`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec
from msgspec.structs import replace

from reyn.cli.groups import command
from reyn.cli.hints import full_hint, with_commands
from reyn.cli.options import json_option
from reyn.cli.project import configured_project, open_existing_project, ops_of, project_ops, project_root, skill_name
from reyn.cli.writer import Report, out, wants_json
from reyn.errors import (
    AgentSkillInvalid,
    CaseInvalid,
    FileExists,
    Finding,
    FixImpossible,
    SkillNotExportable,
    SkillNotFound,
)
from reyn.texts import counted

if TYPE_CHECKING:
    from reyn.skills import Library
    from reyn.vocabulary import Vocabulary


@command(epilog="Example: reyn lint hello --json")
@click.argument("skills", nargs=-1, metavar="[SKILL|agent:NAME]...")
@click.option("--fix", is_flag=True, help="Rewrite skills of the older form; write edge texts. Comments are preserved.")
@json_option
def lint_command(skills: tuple[str, ...], fix: bool) -> Report:
    """Check skills and agents; print errors and warnings with file, line, column, code and fix.

    Without an argument, every skill, every agent and the files in reyn/shared are checked. SKILL is a name or a path.
    A file that cannot be parsed hides only findings that depend on it. The exit code is 1 if there are errors; warnings
    do not count. A skill with errors does not run.
    Paths are relative to the current folder, or absolute outside of it. `reyn explain CODE` explains a finding.
    """
    from reyn.cli.files import relative_path
    from reyn.config import PythonSettings
    from reyn.journal.kinds import AGENT_PREFIX
    from reyn.lint import lint_agent, lint_shared, lint_skill
    from reyn.skills import Library
    from reyn.skills.agents import Agents
    from reyn.skills.resolve import is_path

    project, library = configured_project(), Library(project_root())
    vocabulary = ops_of(project).vocabulary
    python = (PythonSettings() if project is None else project.config.python).sandbox
    agents = Agents(project_root())
    names = [name.removeprefix(AGENT_PREFIX) for name in skills if name.startswith(AGENT_PREFIX)]
    folders = [(library.find(skill_name(name)), is_path(name)) for name in skills if not name.startswith(AGENT_PREFIX)]
    if not skills:
        names = [name for name in agents if agents.path(name) is not None]
        folders = [(folder, False) for _, shelf, folder in library if shelf != "stdlib"]
    # A skill at a path is resolved against the project that contains it.
    libraries = {folder: Library.around(folder) if by_path else library for folder, by_path in folders}
    unfixed = _fix(libraries, vocabulary) if fix else 0
    # Models that need trust are configured, too.
    classes = None if project is None else {*project.config.models, *project.trust.ignored_models}
    reports = []
    for folder, around in libraries.items():
        findings = lint_skill(folder, around, vocabulary, python, classes if around is library else None)
        placed = [replace(finding, file=_path_of(finding.file, folder, around)) for finding in findings]
        reports.append(_Checked(folder.name, placed))
    shared = library.shared[0]
    if not skills and shared.is_dir():
        placed = [replace(one, file=_path_of(one.file, shared, library)) for one in lint_shared(library, vocabulary)]
        reports.append(_Checked("shared", placed))
    known_skills = [name for name, _, _ in library]
    for name in names:
        findings = lint_agent(agents, name, known_skills, vocabulary, classes)
        placed = [replace(finding, file=relative_path(project_root() / finding.file)) for finding in findings]
        reports.append(_Checked(f"{AGENT_PREFIX}{name}", placed))
    errors = sum(report.count("error") for report in reports)
    value = [
        msgspec.to_builtins(found) | {"fix": with_commands(found.fix), "skill": report.name}
        for report in reports
        for found in report.findings
    ]
    lines = (line for report in reports for line in report.lines())
    none = ["no skills in this project; `reyn lint PATH` checks one elsewhere"]
    return Report(value, lines if reports else none, 1 if errors or unfixed else 0)


def _fix(libraries: dict[Path, Library], vocabulary: Vocabulary) -> int:
    """Rewrite skills; return the number of those that cannot be rewritten."""
    from reyn.lint import fix_skill

    unfixed = 0
    for folder, library in libraries.items():
        try:
            files = fix_skill(folder, library, vocabulary)
        except FixImpossible as error:
            unfixed += 1
            out.note(f"{folder.name}: {error.code} {error.message}")
            out.note(f"  {full_hint(error.code, error.hint)}")
            continue
        for file in files:
            out.line(f"rewrote {_path_of(file, folder, library)}", err=wants_json())
    return unfixed


class _Checked(NamedTuple):
    """The findings about a skill or an agent."""

    name: str
    findings: list[Finding]

    def count(self, severity: str) -> int:
        return sum(finding.severity == severity for finding in self.findings)

    def lines(self) -> Iterator[str]:
        errors, warnings = self.count("error"), self.count("warning")
        counts = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}" if errors or warnings else "OK"
        yield f"{self.name}: {counts}"
        for finding in self.findings:
            yield from with_commands(str(finding)).split("\n")


def _path_of(file: str, folder: Path, library: Library) -> str:
    """Return the path of a file that a finding about a skill names: one of the skill, or a shared one."""
    from reyn.cli.files import relative_path
    from reyn.skills.names import find_path

    own = find_path(folder, file)
    shared = [parent.parent for parent in library.shared if file.startswith(f"{parent.name}/")]
    if own is None and shared:
        return relative_path(find_path(shared[0], file) or shared[0] / file)
    return relative_path(own or folder / file)


@command(epilog="Example: reyn test summarize --json")
@click.argument("skills", nargs=-1, metavar="[SKILL]...")
@json_option
def test_command(skills: tuple[str, ...]) -> Report:
    """Run the cases of SKILL, or of every skill of the project, and compare the results.

    A case is a folder below `cases/` of the skill, with an input, the answers of a model and the expected result. No
    model is called and nothing is recorded. The permission rules of the project decide about each op, and
    `replies.jsonl` of the case replies where they ask. Files go to a temporary folder; programs, the web, MCP servers
    and ops of other packages are not executed. The exit code is 1 if a case fails.
    """
    project = open_existing_project().project
    names = [skill_name(name) for name in skills] or [name for name, shelf, _ in project.library if shelf != "stdlib"]
    reports = {name: project.try_cases(name) for name in names}
    for name, report in reports.items() if skills else ():
        if not report.cases:
            raise CaseInvalid(f"the skill `{name}` has no cases")
    value = [
        {"skill": name, "case": case.name, "passed": case.passed, "problems": list(case.problems)}
        for name, report in reports.items()
        for case in report.cases
    ]
    lines = [
        line
        for name, report in reports.items()
        for line in (f"{name}: {report.summary}", *(f"  {problem}" for problem in report.failures))
    ] or ["no skills in this project; `reyn test NAME` tests one of the standard library"]
    return Report(value, lines, 0 if all(report.passed for report in reports.values()) else 1)


_max_bytes = click.option(
    "--max-bytes", metavar="N", type=click.IntRange(1), help="Maximum size of all files. Default: 5,000,000."
)
_max_files = click.option(
    "--max-files", metavar="N", type=click.IntRange(1), help="Maximum number of files. Default: 200."
)


def _read_files(folder: Path, max_bytes: int | None, max_files: int | None) -> tuple[dict[str, bytes], list[str]]:
    """Return the files of a skill's folder, and what is left out."""
    from reyn.skills.files import MAX_BYTES, MAX_FILES, read_folder

    return read_folder(folder, max_bytes=max_bytes or MAX_BYTES, max_files=max_files or MAX_FILES)


@command("import-skill", epilog="Example: reyn import-skill downloads/pdf-processing --name pdf")
@click.argument("path")
@click.option("--name", help="Name of the new skill. Default: that of the Agent Skill.")
@_max_bytes
@_max_files
@click.option("--dry-run", is_flag=True, help="Show what would be written and what cannot be converted.")
@json_option
def import_skill_command(
    path: str, name: str | None, max_bytes: int | None, max_files: int | None, dry_run: bool
) -> Report:
    """Convert the Agent Skill (agentskills.io) in the folder PATH into the skill reyn/local/NAME.

    Its instructions become the only phase of the skill; its scripts, references and assets are copied. What Reyn cannot
    convert is listed. An existing skill is not overwritten, and the name in the folder never takes the place of a skill
    of the project or of the standard library; `--name` does. `reyn run skill_importer` does the same with a review.
    """
    from reyn.cli.files import write_new_files
    from reyn.lint import lint_skill
    from reyn.skills import Library
    from reyn.skills.agentskills import SKILL_FILE, parse_agent_skill, to_reyn

    source = Path(path).parent if Path(path).name == SKILL_FILE else Path(path)
    files, left_out = _read_files(source, max_bytes, max_files)
    conversion = to_reyn(parse_agent_skill(files), name or "")
    root, folder = project_root(), f"reyn/local/{conversion.name}"
    notes = [*conversion.unconverted, *left_out]
    errors: list[str] = []
    if os.path.lexists(root / folder):
        hint = "Remove it, or choose another name with `--name`."
        raise FileExists(f"`{folder}` already exists; nothing was written", hint=hint)
    if name is None:
        _check_new(conversion.name, Library(root))
    if not dry_run:
        write_new_files(root, {f"{folder}/{file}": content for file, content in conversion.files.items()})
        findings = lint_skill(root / folder, Library(root), project_ops().vocabulary)
        errors = [str(finding) for finding in findings if finding.severity == "error"]
    names = sorted(conversion.files)
    value = {"name": conversion.name, "folder": folder, "written": not dry_run, "files": names}
    value |= {"unconverted": notes, "errors": errors, "imports": conversion.imports}
    lines = [f"{'would write' if dry_run else 'created'} {folder} ({len(names)} files)"]
    lines += [f"  {file}" for file in names] if dry_run else []
    lines += _not_converted(notes)
    if not wants_json():
        for error in errors:
            out.note(f"  {error}")
    lines += [] if dry_run else [f"next: reyn run {conversion.name} 'What to do'"]
    return Report(value, lines, 1 if errors else 0)


def _not_converted(notes: list[str]) -> list[str]:
    return ["not converted:", *(f"  - {note}" for note in notes)] if notes else []


def _check_new(name: str, library: Library) -> None:
    """Refuse a name that the author of the folder chose and that a skill of the project or the standard library has.

    A skill in reyn/local precedes the others: one with the name `chat` would answer in every conversation.
    """
    from reyn.skills.resolve import STDLIB

    try:
        existing = library.find(name)
    except SkillNotFound:
        return
    place = "the standard library" if existing.is_relative_to(STDLIB) else "the project"
    raise FileExists(
        f"a skill `{name}` exists in {place}, and this one would take its place; nothing was written",
        hint=f"Choose another name with `--name`. `--name {name}` takes the place of the existing skill.",
    )


@command("export-skill", epilog="Example: reyn export-skill summarize --to output")
@click.argument("skill")
@click.option("--to", "folder", default=".", metavar="DIR", help="Folder for the new one. Default: the current folder.")
@click.option("--name", help="Name of the Agent Skill. Default: that of the skill, with hyphens.")
@_max_bytes
@_max_files
@json_option
def export_skill_command(
    skill: str, folder: str, name: str | None, max_bytes: int | None, max_files: int | None
) -> Report:
    """Write SKILL as an Agent Skill (agentskills.io): the folder DIR/NAME with a SKILL.md.

    The phases become steps of the instructions. What the format cannot express is listed. An Agent Skill that was
    imported and not changed since is written as it was. An existing folder is not overwritten.
    """
    from reyn.cli.files import write_new_files
    from reyn.skills import Library, load_skill
    from reyn.skills.agentskills import from_reyn

    library = Library(project_root())
    found = library.find(skill_name(skill))
    loaded = load_skill(found, project_ops().vocabulary, library)
    try:
        files, left_out = _read_files(found, max_bytes, max_files)
    except AgentSkillInvalid as error:
        is_size = error.hint == AgentSkillInvalid.size_hint
        raise SkillNotExportable(error.message, hint=error.hint if is_size else None) from error
    conversion = from_reyn(loaded, files, name or "")
    target = Path(folder) / conversion.name
    if os.path.lexists(target):
        raise FileExists(f"`{target}` already exists; nothing was written", hint="Choose another folder with `--to`.")
    write_new_files(target, conversion.files)
    notes = [*conversion.unconverted, *left_out]
    names = sorted(conversion.files)
    value = {"name": conversion.name, "folder": str(target), "files": names, "unconverted": notes}
    return Report(value, [f"created {target} ({len(names)} files)", *_not_converted(notes)])
