"""Commands for authors: `init`, `new`, `skills`, `ops`, `graph`, `frame`."""

from __future__ import annotations

import keyword
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from reyn.cli.groups import command, group
from reyn.cli.options import choice_option, json_option, model_option
from reyn.cli.project import open_existing_project, parse_input, project_ops, project_root, skill_name
from reyn.cli.writer import Raw, Report, out, wants_json
from reyn.errors import ConfigError, OpUnknown, RunNotFound

if TYPE_CHECKING:
    from reyn.context.budget import FrameSection
    from reyn.runtime import SyncRuntime
    from reyn.skills import Skill
    from reyn.vocabulary import OpSpec

_FILES = Path(__file__).parent.parent
_TEMPLATES = ("linear", "loop", "branch")
_IGNORED = ".reyn/\nreyn.local.yaml\n"
_INPUT_INIT = '{"name": "Ada", "occasion": "harvest dinner"}'


@command(epilog="Example: reyn init my_project")
@click.argument("folder", default=".")
def init_command(folder: str) -> Report:
    """Create a project in FOLDER: a reyn.yaml and a skill `hello` with scripted answers and a test case."""
    from reyn.cli.files import write_new_files

    root = Path(folder)
    write_new_files(root, _files("new_project"), optional={".gitignore": _IGNORED})
    out.line(f"created a project in {root}")
    _trust(root.resolve())
    prefix = "" if root == Path() else f"cd {shlex.quote(str(root))} && "
    return Report(None, [f"next: {prefix}reyn run hello {shlex.quote(_INPUT_INIT)}"])


def _files(folder: str, name: str = "") -> dict[str, str]:
    """Return the files of a template by their paths in it, with `NAME` replaced."""
    root = _FILES / folder
    paths = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_text("utf-8").replace("NAME", name) for path in paths}


def _trust(root: Path) -> None:
    from reyn.permissions.trust import load_project, store_decision

    try:
        loaded = load_project(root)
        if not loaded.trust.grants:  # files that were there before are not the user's word
            store_decision(loaded)
    except ConfigError as error:  # the project works without trust
        out.note(f"note: the project could not be trusted: {error.message}")


@group(for_names="skill", epilog="Example: reyn new skill menu_line --template loop")
def new_command() -> None:
    """Create files from a template."""


@new_command.command("skill", epilog="Example: reyn new skill menu_line --template loop")
@click.argument("name")
@choice_option("--template", _TEMPLATES, "Shape of the graph.")
@click.option("--local", is_flag=True, help="Write to reyn/local/, which is not shared.")
def new_skill(name: str, template: str, local: bool) -> Report:
    """Create the skill NAME with scripted answers for one run.

    Then edit its phases, artifacts and graph.
    """
    from reyn.cli.files import write_new_files
    from reyn.skills import Library
    from reyn.skills.names import is_valid_name

    if not is_valid_name(name):
        message = f"`{name}` is invalid or reserved; use letters, digits, `_` and `-`, and start with a letter"
        raise click.BadParameter(message, param_hint="NAME")
    is_shadowing = any(known == name and shelf == "stdlib" for known, shelf, _ in Library(project_root()))
    folder = f"reyn/{'local' if local else 'project'}/{name}"
    files = _files(f"new_skill/{template}", name)
    write_new_files(project_root(), {f"{folder}/{file}": text for file, text in files.items()})
    note = [f"note: it replaces the standard skill `{name}` in this project"] if is_shadowing else []
    script = f"--model scripted:{folder}/cases/first/answers.jsonl"
    return Report(None, [f"created {folder}", *note, f"next: reyn run {name} 'Please greet me.' {script}"])


@new_command.command("function", epilog="Example: reyn new function title_of")
@click.argument("name")
def new_function(name: str) -> Report:
    """Create the module NAME.py with a function and a tool.

    A model executes the function; scripted answers for one call are created, too. Then edit its types and its
    docstring, which contains the instructions for the model.
    """
    from reyn.cli.files import write_new_files
    from reyn.skills.names import is_valid_name

    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower() or not is_valid_name(name):
        message = f"`{name}` is not the name of a Python module; begin with a letter, then letters, digits and `_`"
        raise click.BadParameter(message, param_hint="NAME")
    files, answers = _files("new_function", name), f"{name}_answers.jsonl"
    write_new_files(project_root(), {f"{name}.py": files["module.txt"], answers: files["answers.jsonl"]})
    text = '{"text": "The bridge is open again."}'
    run = f"next: reyn run {name}:{name} '{text}' --model scripted:{answers}"
    return Report(None, [f"created {name}.py", run])


@command(epilog="Example: reyn skills summarize --json")
@click.argument("name", required=False)
@json_option
def skills_command(name: str | None) -> Report:
    """List the skills of the project, or describe NAME: its input, output and phases."""
    from reyn.skills import Library
    from reyn.skills.resolve import description_of

    if name is not None:
        skill = _load(name)
        fields: dict[str, Any] = {
            "name": skill.name,
            "description": skill.description,
            "input": [artifact.name for artifact in skill.entry_inputs],
            "output": skill.result.name,
            "phases": list(skill.phases),
            "skills": sorted(skill.skills),
        }
        texts = {key: ", ".join(value) if isinstance(value, list) else value for key, value in fields.items()}
        return Report(fields, [f"{key:<12} {text}" for key, text in texts.items() if text])
    library = Library(project_root())
    rows = [{"name": found, "shelf": shelf, "description": description_of(folder)} for found, shelf, folder in library]
    width = max(len(row["name"]) for row in rows)
    return Report(rows, (f"{row['name']:<{width}}  {row['shelf']:<8}  {row['description']}" for row in rows))


def _load(skill: str) -> Skill:
    from reyn.skills import Library, load_skill

    library = Library(project_root())
    return load_skill(library.find(skill_name(skill)), project_ops().vocabulary, library)


@command(epilog="Example: reyn ops file")
@click.argument("kind", required=False)
@json_option
def ops_command(kind: str | None) -> Report:
    """List the available ops and the names of errors, or document KIND.

    Includes the ops of installed packages and the project's tools.
    """
    from reyn.documents import as_hint
    from reyn.ops.docs import error_names, op_page
    from reyn.skills.allowed_ops import unknown_op_fix

    table = project_ops()
    vocabulary = table.vocabulary
    for problem in table.problems:
        out.note(f"warning: {problem}")
    if kind is not None:
        spec = vocabulary.op(kind)
        if spec is None:
            raise OpUnknown(f"no op kind `{kind}`", hint=as_hint(unknown_op_fix(kind, vocabulary.op_kinds)))
        return Report(_with_error_names(spec), [Raw(op_page(spec, "#"))])
    width = max(len(one.kind) for one in vocabulary.ops)
    notes = ("" if one.is_available or one.advice else f" ({one.why_unavailable})" for one in vocabulary.ops)
    pairs = zip(vocabulary.ops, notes, strict=True)
    errors = error_names(vocabulary.ops)
    names = max(len(one.name) for one in errors)
    return Report(
        {"ops": [_with_error_names(one) for one in vocabulary.ops], "errors": errors},
        (
            *(f"{one.kind:<{width}}  {one.effect:<12}  {one.summary}{note}" for one, note in pairs),
            "",
            "errors, for `retry` and `on_error` of a node:",
            *(f"{one.name:<{names}}  {one.meaning or ', '.join(one.ops)}" for one in errors),
        ),
    )


def _with_error_names(spec: OpSpec) -> dict[str, Any]:
    """Return a specification with the names of its errors."""
    value: dict[str, Any] = msgspec.to_builtins(spec)
    return value | {"error_names": spec.error_names}


@command(epilog="Example: reyn graph hello --format mermaid")
@click.argument("skill")
@choice_option("--format", ("text", "mermaid", "svg"), "Output format.")
@json_option
def graph_command(skill: str, format: str) -> Report:
    """Draw the graph of SKILL: phases, transitions and ends.

    SKILL is a name, or a path that contains a slash. Each arrow has the artifact type that is passed on, and when to
    choose it. `↺`, or a dashed line, leads back to an earlier phase. `@` marks another skill.
    """
    from reyn.skills.drawing import edges, node_kind, nodes, to_mermaid, to_text
    from reyn.skills.graph_svg import to_svg

    loaded = _load(skill)
    drawn = [{"name": node, "kind": node_kind(loaded, node)} for node in nodes(loaded)]
    value = {"entry": loaded.entry, "nodes": drawn, "edges": edges(loaded)}
    draw = {"text": to_text, "mermaid": to_mermaid, "svg": to_svg}[format]
    return Report(value, () if wants_json() else [Raw(draw(loaded))])


@command(epilog='Example: reyn frame hello \'{"name": "Ada"}\'; reyn frame order-17')
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
) -> Report:
    """Print the first prompt of SKILL for INPUT, or a recorded prompt of RUN with the model's answer.

    With SKILL, INPUT is the input of the entry phase, or of the phase that --phase names; empty by default. With RUN,
    the command prints the last prompt at or before event SEQ; by default the last prompt of the run. With --next, it
    prints the prompt that a waiting run would send if the user replied TEXT. Nothing is recorded, and
    nothing is executed but the preprocessor steps of a phase where all of them only read.

    The form of the answer depends on the configured model, or on --model. If the model has native tools, they follow
    the messages. If a part of the prompt was truncated, a table with the size of each section follows.

    --json prints the context frame, the data that the prompt is rendered from. With --messages or --next, --json prints
    a list of messages with `role` and `text`, for RUN followed by the answer.
    """
    runtime = open_existing_project(model=model)
    may_be_run = phase is None and model is None and (input_or_seq is None or _is_number(input_or_seq))
    run = _find_run(runtime, skill_or_run) if may_be_run else None
    if answer is not None:
        if run is None:
            raise RunNotFound(f"no run `{skill_or_run}`")
        texts = runtime.runs.next_prompt(run, answer or None)
        return Report(_messages(texts), _lines(texts))
    if run is not None:
        seq = None if input_or_seq is None else int(input_or_seq)
        is_value = wants_json() and not tokens and not messages
        frame = runtime.runs.context_frame(run, seq) if is_value else None
        sections = runtime.runs.prompt_sections(run, seq)
        texts = runtime.runs.prompt_at(run, seq)
    else:
        frame = runtime.project.first_frame(skill_name(skill_or_run), parse_input(input_or_seq), phase=phase)
        sections, texts = frame.sections, list(frame.messages)
        if input_or_seq is None:
            out.note(f"note: no INPUT; the prompt has an empty `{frame.input_artifact['type']}`")
    for warning in frame.warnings if frame is not None else ():
        out.note(f"warning: {warning}")
    if tokens:
        from reyn.cli.charts import section_json

        total = sum(section.tokens for section in sections)
        return Report({"tokens": total, "sections": list(map(section_json, sections))}, [_section_table(sections)])
    value = _messages(texts) if messages or frame is None else frame.as_json()
    return Report(value, _lines(texts, sections))


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


def _messages(texts: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"role": role, "text": text} for role, text in texts]


def _lines(texts: Iterable[tuple[str, str]], sections: tuple[FrameSection, ...] = ()) -> Iterator[str]:
    """Yield messages, and the table of sections if one of them was truncated."""
    for role, text in texts:
        yield f"[{role}]"
        yield Raw(f"{text}\n")
    if any(section.was_truncated for section in sections):
        yield "[tokens]"
        yield _section_table(sections)


def _section_table(sections: tuple[FrameSection, ...]) -> Raw:
    from reyn.cli.charts import section_table

    return Raw(section_table(sections))
