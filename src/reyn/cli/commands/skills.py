"""`reyn skills`."""

from __future__ import annotations

from typing import Any

import click

from reyn.cli.output import clean, json_option, print_json
from reyn.cli.project import project_ops, project_root, skill_name


@click.command(epilog="Example: reyn skills summarize --json")
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """List the skills of the project, or describe NAME: its input, output and phases."""

    from reyn.skills import Library, load_skill

    library = Library(project_root())
    if name is not None:
        skill = load_skill(library.find(skill_name(name)), project_ops().vocabulary, library)
        fields: dict[str, Any] = {
            "name": skill.name,
            "description": skill.description,
            "input": [artifact.name for artifact in skill.entry_inputs],
            "output": skill.result.name,
            "phases": list(skill.phases),
            "skills": sorted(skill.skills),
        }
        if as_json:
            print_json(fields)
        else:
            for key, value in fields.items():
                if value:
                    click.echo(f"{key:<12} {clean(', '.join(value) if isinstance(value, list) else value)}")
        return
    rows = [{"name": found, "shelf": shelf, "description": _description(folder)} for found, shelf, folder in library]
    if as_json:
        print_json(rows)
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        click.echo(clean(f"{row['name']:<{width}}  {row['shelf']:<8}  {row['description']}"))


def _description(folder: Any) -> str:
    """Return the description in the front matter: one broken skill must not break the list."""
    from reyn.documents import DocumentError, parse_front_matter, read_text

    try:
        value = parse_front_matter(read_text(folder / "skill.md", "skill.md", inside=folder), "skill.md").value
    except DocumentError:
        return "(invalid; run `reyn lint`)"
    return str(value.get("description", "")).strip() if isinstance(value, dict) else ""
