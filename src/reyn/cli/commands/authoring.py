"""Commands for authors: `init`, `new`, `skills`, `ops`, `graph`, `frame`."""

from __future__ import annotations

import keyword
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from reyn.cli.charts import section_json, section_table
from reyn.cli.files import write_new_files
from reyn.cli.groups import CommandGroup
from reyn.cli.output import clean, echo_lines, json_option, print_json
from reyn.cli.project import model_option, open_existing_project, parse_input, project_ops, project_root, skill_name
from reyn.cli.templates import TEMPLATES, function_template
from reyn.errors import ConfigError, OpUnknown, RunNotFound
from reyn.skills import Library, load_skill
from reyn.skills.drawing import edges, kind_of, nodes, to_mermaid, to_svg, to_text
from reyn.skills.names import is_valid_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reyn.context.budget import FrameSection
    from reyn.runtime import SyncRuntime

_PROJECT = Path(__file__).parent.parent / "new_project"
_IGNORED = ".reyn/\nreyn.local.yaml\n"
_INPUT_INIT = '{"name": "Ada", "occasion": "harvest dinner"}'


@click.command(epilog="Example: reyn init my_project")
@click.argument("folder", default=".")
def init_command(folder: str) -> None:
    """Create a project in FOLDER: a reyn.yaml and a skill `hello` with scripted answers and a test case."""
    root = Path(folder)
    files = {
        path.relative_to(_PROJECT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(_PROJECT.rglob("*"))
        if path.is_file()
    }
    write_new_files(root, files, optional={".gitignore": _IGNORED})
    click.echo(f"created a project in {root}")
    _trust(root.resolve())
    prefix = "" if root == Path() else f"cd {shlex.quote(str(root))} && "
    click.echo(f"next: {prefix}reyn run hello {shlex.quote(_INPUT_INIT)}")


def _trust(root: Path) -> None:
    from reyn.permissions.trust import load_project, store_decision

    try:
        store_decision(load_project(root))
    except ConfigError as error:  # the project works without trust
        click.echo(f"note: the project could not be trusted: {clean(error.message)}", err=True)


@click.group(cls=CommandGroup, for_names="skill", epilog="Example: reyn new skill menu_line --template loop")
def new_command() -> None:
    """Create files from a template."""


_INPUT_NEW = '{"type": "user_message", "data": {"text": "Please greet me."}}\n'


@new_command.command("skill", epilog="Example: reyn new skill menu_line --template loop")
@click.argument("name")
@click.option(
    "--template", type=click.Choice(list(TEMPLATES)), default="linear", show_default=True, help="Shape of the graph."
)
@click.option("--local", is_flag=True, help="Write to reyn/local/, which is not shared.")
def new_skill(name: str, template: str, local: bool) -> None:
    """Create the skill NAME with scripted answers for one run.

    Then edit its phases, artifacts and graph.
    """
    if not is_valid_name(name):
        message = f"`{name}` is invalid or reserved; use letters, digits, `_` and `-`, and start with a letter"
        raise click.BadParameter(message, param_hint="NAME")
    library = Library(project_root())
    is_shadowing = any(known == name and shelf == "stdlib" for known, shelf, _ in library)
    skill = TEMPLATES[template](name)
    folder = f"reyn/{'local' if local else 'project'}/{name}"
    files = {f"{folder}/{file}": text for file, text in skill.files.items()}
    case = {"answers.jsonl": skill.script, "input.json": _INPUT_NEW}
    files |= {f"{folder}/cases/first/{file}": text for file, text in case.items()}
    write_new_files(project_root(), files)
    click.echo(f"created {folder}")
    if is_shadowing:
        click.echo(f"note: it replaces the standard skill `{name}` in this project")
    click.echo(f"next: reyn run {name} 'Please greet me.' --model scripted:{folder}/cases/first/answers.jsonl")


@new_command.command("function", epilog="Example: reyn new function title_of")
@click.argument("name")
def new_function(name: str) -> None:
    """Create the module NAME.py with a function and a tool.

    A model executes the function; scripted answers for one call are created, too. Then edit its types and its
    docstring, which contains the instructions for the model.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower() or not is_valid_name(name):
        message = f"`{name}` is not the name of a Python module; begin with a letter, then letters, digits and `_`"
        raise click.BadParameter(message, param_hint="NAME")
    module, script = function_template(name)
    answers = f"{name}_answers.jsonl"
    write_new_files(project_root(), {f"{name}.py": module, answers: script})
    click.echo(f"created {name}.py")
    text = '{"text": "The bridge is open again."}'
    click.echo(f"next: reyn run {name}:{name} '{text}' --model scripted:{answers}")


@click.command(epilog="Example: reyn skills summarize --json")
@click.argument("name", required=False)
@json_option
def skills_command(name: str | None, as_json: bool) -> None:
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


@click.command(epilog="Example: reyn ops file")
@click.argument("kind", required=False)
@json_option
def ops_command(kind: str | None, as_json: bool) -> None:
    """List the available ops, or document KIND. Includes the ops of installed packages and the project's tools."""
    from reyn.documents import nearest_hint
    from reyn.ops.docs import op_page

    table = project_ops()
    vocabulary = table.vocabulary
    for problem in table.problems:
        click.echo(f"warning: {clean(problem)}", err=True)
    if kind is None:
        if as_json:
            print_json([msgspec.to_builtins(spec) for spec in vocabulary.ops])
            return
        width = max(len(spec.kind) for spec in vocabulary.ops)
        for spec in vocabulary.ops:
            note = "" if spec.is_available else " (reserved for a later version)"
            click.echo(f"{spec.kind:<{width}}  {spec.effect:<12}  {clean(spec.summary)}{note}")
        return
    spec_of_kind = vocabulary.op(kind)
    if spec_of_kind is None:
        raise OpUnknown(f"no op kind `{kind}`", hint=nearest_hint(kind, vocabulary.op_kinds) or None)
    if as_json:
        print_json(spec_of_kind)
        return
    click.echo(op_page(spec_of_kind, "#"), nl=False)


FORMATS = {"text": to_text, "mermaid": to_mermaid, "svg": to_svg}


@click.command(epilog="Example: reyn graph hello --format mermaid")
@click.argument("skill")
@click.option(
    "--format", "form", type=click.Choice(list(FORMATS)), default="text", show_default=True, help="Output format."
)
@json_option
def graph_command(skill: str, form: str, as_json: bool) -> None:
    """Draw the graph of SKILL: phases, transitions and ends.

    SKILL is a name, or a path that contains a slash. Each arrow has the artifact type that is passed on, and when to
    choose it. `↺`, or a dashed line, leads back to an earlier phase. `@` marks another skill. SVG needs Graphviz.
    """
    library = Library(project_root())
    loaded = load_skill(library.find(skill_name(skill)), project_ops().vocabulary, library)
    if as_json:
        drawn = [{"name": node, "kind": kind_of(node)} for node in nodes(loaded)]
        print_json({"entry": loaded.entry, "nodes": drawn, "edges": edges(loaded)})
    else:
        click.echo(FORMATS[form](loaded), nl=False)


@click.command(epilog='Example: reyn frame hello \'{"name": "Ada"}\'; reyn frame order-17')
@click.argument("skill_or_run", metavar="SKILL|RUN")
@click.argument("input_or_seq", metavar="[INPUT|SEQ]", required=False)
@click.option("--phase", metavar="PHASE", help="Phase of SKILL to show. Default: the entry phase.")
@model_option
@click.option("--tokens", is_flag=True, help="Show the estimated tokens of each section instead of the prompt.")
@click.option(
    "--next", "answer", metavar="TEXT", help="Show the prompt that RUN would send next if TEXT answers its question."
)
@click.option("--messages", is_flag=True, help="With --json: print the messages and the answer, not the context frame.")
@json_option
def frame_command(
    skill_or_run: str,
    input_or_seq: str | None,
    phase: str | None,
    model: str | None,
    tokens: bool,
    answer: str | None,
    messages: bool,
    as_json: bool,
) -> None:
    """Print the first prompt of SKILL for INPUT, or a recorded prompt of RUN with the model's answer.

    With SKILL, INPUT is the input of the entry phase, or of the phase that --phase names; empty by default. With RUN,
    the command prints the last prompt at or before event SEQ; by default the last prompt of the run. With --next, it
    prints the prompt that a waiting run would send if the user replied TEXT. Nothing is executed or recorded.

    The form of the answer depends on the configured model, or on --model. If the model has native tools, they follow
    the messages. If a part of the prompt was truncated, a table with the size of each section follows.

    --json prints the context frame, the data that the prompt is rendered from. With --messages or --next, --json prints
    a list of messages with `role` and `text`, for RUN followed by the answer.
    """
    with open_existing_project(model=model) as runtime:
        may_be_run = phase is None and model is None and (input_or_seq is None or _is_number(input_or_seq))
        run = _find_run(runtime, skill_or_run) if may_be_run else None
        if answer is not None:
            if run is None:
                raise RunNotFound(f"no run `{skill_or_run}`")
            texts = runtime.runs.next_prompt(run, answer or None)
            if as_json:
                print_json([{"role": role, "text": text} for role, text in texts])
            else:
                _print(texts)
            return
        if run is not None:
            seq = None if input_or_seq is None else int(input_or_seq)
            is_value = as_json and not tokens and not messages
            frame = runtime.runs.context_frame(run, seq) if is_value else None
            sections = runtime.runs.prompt_sections(run, seq)
            texts = runtime.runs.prompt_at(run, seq)
        else:
            frame = runtime.project.first_frame(skill_name(skill_or_run), parse_input(input_or_seq), phase=phase)
            sections, texts = frame.sections, list(frame.messages)
            if input_or_seq is None:
                click.echo(f"note: no INPUT; the prompt has an empty `{frame.input_artifact['type']}`", err=True)
        for warning in frame.warnings if frame is not None else ():
            click.echo(f"warning: {clean(warning)}", err=True)
        if tokens:
            _print_sections(sections, as_json)
        elif as_json and messages:
            print_json([{"role": role, "text": text} for role, text in texts])
        elif as_json and frame is not None:
            print_json(frame.as_json())
        else:
            _print(texts)
            if any(section.was_truncated for section in sections):
                click.echo("[tokens]")
                _print_sections(sections, as_json=False)


def _is_number(argument: str) -> bool:
    return argument.isascii() and argument.isdigit() and len(argument) < 19


def _find_run(runtime: SyncRuntime, argument: str) -> str | None:
    """Return the run with this id or prefix, if there is one. A skill name takes precedence over a prefix."""
    is_skill = any(name == argument for name, _, _ in runtime.project.library)
    if is_skill and not runtime.runs.is_recorded(argument):
        return None
    with suppress(RunNotFound):
        return runtime.runs.find(argument).run_id
    return None


def _print(messages: Iterable[tuple[str, str]]) -> None:
    for role, text in messages:
        click.echo(f"[{role}]")
        echo_lines(text)


def _print_sections(sections: tuple[FrameSection, ...], as_json: bool) -> None:
    if as_json:
        total = sum(section.tokens for section in sections)
        print_json({"tokens": total, "sections": [section_json(section) for section in sections]})
    else:
        click.echo(section_table(sections), nl=False)
