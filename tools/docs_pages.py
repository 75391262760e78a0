"""The pages of the documentation that are made from tables: errors, events, configuration, command line, words.

`python tools/docs_pages.py` writes them; with `--check` it only tells whether they are as they should be.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from reyn.cli.app import COMMANDS, app
from reyn.config import Config
from reyn.errors import FINDINGS, all_errors
from reyn.journal.registry import families, kinds
from reyn.ops import OpTable
from reyn.ops.docs import op_page, table
from reyn.ops.table import BUILT_IN

DOCS = Path(__file__).parent.parent / "docs" / "reference"
MADE = "<!-- Made by tools/docs_pages.py from the code; edit the code. -->\n\n"


def errors() -> Iterator[str]:
    import reyn.errors

    yield "# Errors\n\nEvery error has a stable code, a message and a next step. With `--json` it is one object.\n"
    tree = textwrap.dedent((reyn.errors.__doc__ or "").split("\n\n", 2)[2])
    yield f"\n```text\n{tree.strip()}\n```\n"
    for cls in all_errors():
        if cls.code == "RYN000":
            continue
        yield f"\n## {cls.code}\n\n**{cls.__name__}** (exit code {cls.exit_code}). {inspect.getdoc(cls)}\n"
        if cls.hint:
            yield f"\nNext step: {cls.hint}\n"
    yield "\n## Findings\n\nWhat `RYN102` and `RYN701` consist of, each at its `file:line:column`.\n\n"
    yield from table(("code", "meaning"), [(code, meaning) for code, meaning in FINDINGS.items()])


def events() -> Iterator[str]:
    yield (
        "# Events\n\nEvery kind of event that a journal can hold, with its version and its data. An event is "
        "`{seq, run_id, ts, kind, v, data, prev, hash}`; `ts` is in microseconds since 1970, UTC. *start*, *outcome* "
        "and *outside* events are inputs with a time of their own; *derived* events follow from the ones before and "
        "are computed again by a replay.\n"
    )
    shapes = {(cls.kind, cls.version): cls for cls in families()}
    for (kind, version), cls in {**shapes, **kinds()}.items():
        state = f", enters `{cls.enters}`" if cls.enters else ""
        heading = f"`{kind}`" if kind.startswith("<") else kind
        yield f"\n## {heading}\n\n*{cls.origin}*, version {version}{state}. {inspect.getdoc(cls)}\n\n"
        fields = msgspec.inspect.type_info(cls)
        assert isinstance(fields, msgspec.inspect.StructType)
        rows = [(f"`{f.encode_name}`", _type(f.type), "" if f.required else "optional") for f in fields.fields]
        yield from table(("field", "type", ""), rows)


def config() -> Iterator[str]:
    yield (
        "# Configuration\n\n`reyn.yaml` in the project's folder, then `reyn.local.yaml` beside it (yours alone; keep "
        "it out of version control), then variables `REYN_<KEY>` (read as YAML; an empty one "
        "counts as not set), then the flags of a command: later ones win. A key "
        "that is not in this table is an error.\n\n"
    )
    docs = _field_docs(Config)
    rows = []
    for field in msgspec.structs.fields(Config):
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        rows.append((f"`{field.name}`", f"`{msgspec.json.encode(default).decode()}`", docs[field.name]))
    yield from table(("key", "default", "meaning"), rows)


def cli() -> Iterator[str]:
    yield "# Command line\n\n## Exit codes\n\n"
    yield from table(("code", "when"), [(str(code), when) for code, when in EXITS])
    yield (
        "\nPaths of skills, scripts and `@FILE` are relative to the current folder. The project is the nearest parent "
        "folder with a `reyn.yaml`, else the current folder.\n\n## Output\n\nResults go to standard output, errors to "
        "standard error. With `--json`, a command prints one JSON value (`events`: one object a line), an error is "
        '`{"error": {"code", "message", "hint", "more"}}` on standard output, and progress goes to '
        'standard error. With `--stream --json`, standard output has one object a line: `{"delta": {"run_id", '
        '"call", "text"}}` for each piece of the model\'s text, then the result. A non-empty `NO_COLOR`, or '
        "`TERM=dumb`, turns off colour and the live progress line.\n"
    )
    context = click.Context(app, info_name="reyn", terminal_width=100, help_option_names=["-h", "--help"])
    yield f"\n## reyn\n\n```text\n{app.get_help(context)}\n```\n"
    for name in COMMANDS:
        command = app.get_command(context, name)
        assert command is not None
        below = click.Context(command, info_name=name, parent=context, terminal_width=100)
        yield f"\n## reyn {name}\n\n```text\n{command.get_help(below)}\n```\n"
        for inner in command.commands.values() if isinstance(command, click.Group) else ():
            deeper = click.Context(inner, info_name=inner.name, parent=below, terminal_width=100)
            yield f"\n## reyn {name} {inner.name}\n\n```text\n{inner.get_help(deeper)}\n```\n"


def vocabulary() -> Iterator[str]:
    known = OpTable(BUILT_IN).vocabulary
    yield (
        "# Ops, steps and permissions\n\nThe op kinds, step kinds and permission keys of the language. The frame, the "
        "contract and the validation of ops are generated from the same table. `reyn ops` prints it, with the ops of "
        "installed packages.\n\n## Ops\n\nThe effect class says how an op is recovered after a crash between its "
        "intent and its outcome: *pure* and *idempotent* ops run again, a *reconcilable* op first checks whether it "
        "took effect, an *unsafe* op asks a person.\n\n"
    )
    ops = [
        (
            f"`{op.kind}`",
            op.summary,
            op.effect,
            f"`{op.permission}`" if op.permission else "",
            "yes" if op.is_available else "reserved (`RYN103`)",
        )
        for op in known.ops
    ]
    yield from table(("kind", "what it does", "effect", "permission", "available"), ops)
    for op in known.ops:
        if op.is_available:
            yield f"\n{op_page(op, '##')}"
    yield "\n## Steps\n\n"
    steps = [(f"`{s.kind}`", s.summary, ", ".join(f"`{key}`" for key in s.keys)) for s in known.steps]
    yield from table(("kind", "what it does", "keys"), steps)
    yield "\n## Permissions\n\n"
    yield from table(("key", "what it allows"), [(f"`{entry.key}`", entry.summary) for entry in known.permissions])


def _type(shape: Any) -> str:
    """A type in the words of JSON."""
    match shape:
        case msgspec.inspect.Metadata(type=inner):
            return _type(inner) + (" (names content)" if "content" in (shape.extra or {}) else "")
        case msgspec.inspect.StrType():
            return "SHA-256" if shape.min_length == 64 else "string"
        case msgspec.inspect.LiteralType():
            return " or ".join(f"`{value}`" for value in shape.values)
        case msgspec.inspect.UnionType():
            return " or ".join(_type(member) for member in shape.types)
        case msgspec.inspect.VarTupleType():
            return f"list of {_type(shape.item_type)}"
        case msgspec.inspect.StructType():
            fields = ", ".join(f"`{field.encode_name}`: {_type(field.type)}" for field in shape.fields)
            return f"object ({fields})"
    names = {
        "IntType": "integer",
        "FloatType": "number",
        "BoolType": "boolean",
        "NoneType": "null",
        "DictType": "object",
    }
    return names[type(shape).__name__]


def _field_docs(cls: type) -> dict[str, str]:
    """The strings below the fields of a class."""
    import ast

    [tree] = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    docs = {}
    for field, text in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            docs[field.target.id] = str(text.value.value)
    return docs


EXITS = (
    (0, "the run finished; the command succeeded"),
    (1, "the run failed; `replay`, `verify` or `diff` found a difference; another error"),
    (2, "bad usage, invalid input, unknown skill or run; nothing was started"),
    (3, "the run stopped at a limit"),
    (4, "the run waits for an answer"),
    (5, "the model aborted the run, or a rollback made no progress"),
    (6, "the run was cancelled"),
    (7, "the run is blocked: its rules version is not supported, or its copy of the skill is unreadable"),
    (130, "interrupted with Ctrl-C; the run can be resumed"),
    (141, "the reader of the output closed the pipe; a run continues until it ends or stops"),
)

PAGES = {
    "errors.md": errors,
    "events.md": events,
    "config.md": config,
    "cli.md": cli,
    "ops.md": vocabulary,
}


def main() -> int:
    stale = []
    for name, make in PAGES.items():
        path, text = DOCS / name, MADE + "".join(make())
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if "--check" in sys.argv:
            stale.append(name)
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"out of date: {', '.join(stale)}; `make docs` writes them anew")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
