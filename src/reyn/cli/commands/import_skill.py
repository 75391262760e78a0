"""`reyn import-skill`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reyn.cli.output import clean, json_option, print_json
from reyn.cli.project import project_ops, project_root

if TYPE_CHECKING:
    from reyn.skills import Library


@click.command("import-skill", epilog="Example: reyn import-skill downloads/pdf-processing --name pdf")
@click.argument("path")
@click.option("--name", help="Name of the new skill. Default: that of the Agent Skill.")
@click.option("--dry-run", is_flag=True, help="Show what would be written and what cannot be converted.")
@json_option
def command(path: str, name: str | None, dry_run: bool, as_json: bool) -> int:
    """Convert the Agent Skill (agentskills.io) in the folder PATH into the skill reyn/local/NAME.

    Its instructions become the only phase of the skill; its scripts, references and assets are copied. What Reyn cannot
    convert is listed. An existing skill is not overwritten, and the name in the folder never takes the place of a skill
    of the project or of the standard library; `--name` does. `reyn run skill_importer` does the same with a review.
    """
    from reyn.cli.files import write_new_files
    from reyn.errors import FileExists
    from reyn.lint import lint_skill
    from reyn.skills import Library
    from reyn.skills.agentskills import SKILL_FILE, parse_agent_skill, to_reyn
    from reyn.skills.files import read_folder

    source = Path(path).parent if Path(path).name == SKILL_FILE else Path(path)
    files, left_out = read_folder(source)
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
    if as_json:
        print_json(
            {
                "name": conversion.name,
                "folder": folder,
                "written": not dry_run,
                "files": sorted(conversion.files),
                "unconverted": notes,
                "errors": errors,
            }
        )
        return 1 if errors else 0
    verb = "would write" if dry_run else "created"
    click.echo(f"{verb} {clean(folder)} ({len(conversion.files)} files)")
    for file in sorted(conversion.files) if dry_run else ():
        click.echo(f"  {clean(file)}")
    if notes:
        click.echo("not converted:")
    for note in notes:
        click.echo(f"  - {clean(note)}")
    for error in errors:
        click.echo(f"  {clean(error)}", err=True)
    if not dry_run:
        click.echo(f"next: reyn run {conversion.name} 'What to do'")
    return 1 if errors else 0


def _check_new(name: str, library: Library) -> None:
    """Refuse a name that the author of the folder chose and that a skill of the project or the standard library has.

    A skill in reyn/local precedes the others: one with the name `chat` would answer in every conversation.
    """
    from reyn.errors import FileExists, SkillNotFound
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
