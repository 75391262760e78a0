"""The pages of the Python API, from signatures and docstrings. `docs_pages` writes and checks them.

A page has the names that a package exports, each with its signature, its fields and its public methods. Methods without
a docstring are left out. A name that several packages export is described once, and linked elsewhere.
"""

from __future__ import annotations

import ast
import html
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from types import ModuleType
from typing import Any, get_overloads

from reyn.ops.docs import table
from reyn.runtime.sync_form import Synchronous

SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):\n((?: .*\n?|\n)*)", re.M)
WIDTH = 100
FunctionDef = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Page:
    """A page: its title, the package whose names it lists, what comes first, and classes of other modules.

    Attributes:
        title: The heading.
        package: The package.
        start: What a reader does first, in Markdown.
        values: The classes that attributes of the exported classes have, by what a user writes: `rt.runs`.
        elsewhere: The exported names that other pages describe.
        parts: Modules that are listed with their names, and packages whose modules are.
        made: Classes whose constructor a user calls, beside those whose docstring has the arguments.
    """

    title: str
    package: str
    start: str
    values: tuple[tuple[str, str, str], ...] = ()
    elsewhere: tuple[tuple[str, tuple[str, ...]], ...] = ()
    parts: tuple[str, ...] = ()
    made: tuple[str, ...] = ()


PYTHON_API = {
    "python/runtime.md": Page(
        "Python API: the runtime",
        "reyn",
        "`OSRuntime` opens a project and executes its runs; `SyncRuntime` has the same methods without `await`. "
        "[Embed in Python](../../guides/embed-in-python.md) shows how to use them. Errors are in `reyn.errors`; "
        "[Errors](../errors.md) lists them.",
        values=(
            ("rt.runs", "reyn.runs.recorded", "Runs"),
            ("rt.conversations", "reyn.runtime.conversations", "Conversations"),
            ("rt.project", "reyn.runtime.project", "Project"),
            ("rt.permissions", "reyn.runtime.permissions", "Permissions"),
            ("rt.workers", "reyn.runtime.workers", "Workers"),
        ),
        elsewhere=(
            ("functions.md", ("llm_chat", "llm_function", "tool")),
            ("models.md", ("Model", "ModelAnswer", "ModelRequest")),
        ),
    ),
    "python/functions.md": Page(
        "Python API: functions, tools and chats",
        "reyn.functions",
        "[Write a Python function](../../guides/write-a-function.md), [Write a tool](../../guides/write-a-tool.md) and "
        "[Chat from Python](../../guides/chat-from-python.md) show how to use these names.",
        elsewhere=(("models.md", ("Image", "Message")),),
    ),
    "python/chat.md": Page(
        "Python API: conversations",
        "reyn.chat",
        "`rt.chat()` opens a conversation with an [agent](../../guides/talk-with-an-agent.md). [Services](#services) "
        "lists the modules that do the rest.",
        parts=("reyn.chat.conversation", "reyn.chat.services"),
    ),
    "python/models.md": Page(
        "Python API: models",
        "reyn.models",
        "A model is any object with a `name` and an async `complete`: "
        "[Use your own model](../../guides/embed-in-python.md#use-your-own-model), "
        "[Write an adapter](../../guides/use-a-provider.md#write-an-adapter).",
    ),
    "python/context.md": Page(
        "Python API: context",
        "reyn.context",
        "[How a prompt is compiled](../../explanation/context-compile.md) shows how these values work together; "
        "[Pass context between phases](../../guides/pass-context.md) describes handoffs and manifests.",
    ),
    "python/ops.md": Page(
        "Python API: ops",
        "reyn.ops",
        "[Add an op](../../guides/add-an-op.md) shows how to write one. [Ops](../ops.md) lists the built-in kinds.",
        made=("OpFailed", "OpTable"),
    ),
    "python/testing.md": Page(
        "Python API: testing",
        "reyn.testing",
        "[Test a skill](../../guides/test-a-skill.md) shows how to use these names. A subclass of a conformance suite "
        "inherits its tests.",
        made=("CountingIds", "MemoryJournal", "ScriptedModel", "SteppingClock"),
    ),
    "python/client.md": Page(
        "Python API: the HTTP client",
        "reyn.client",
        "The extra `client` installs what it needs. [Use the HTTP API](../../guides/use-the-http-api.md) shows how to "
        "use it.",
    ),
}


def python_pages() -> dict[str, Callable[[], Iterator[str]]]:
    """Return the generator of each page, by its path below `docs/reference`."""
    return {path: partial(_page, page) for path, page in PYTHON_API.items()}


def _exports(page: Page) -> list[str]:
    names: list[str] = importlib.import_module(page.package).__all__
    return [name for name in names if not name.startswith("__")]


def _page(page: Page) -> Iterator[str]:
    package = importlib.import_module(page.package)
    linked = {name: path for path, names in page.elsewhere for name in names}
    own = [name for name in _exports(page) if name not in linked]
    yield f"# {page.title}\n\n{page.start}\n\n```py\nimport {page.package}\n```\n\n"
    if page.package != "reyn":
        yield f"{inspect.getdoc(package)}\n\n"
    anchors = {name: _anchor(_heading(own, name)) for name in own} | {name: name.lower() for name in linked}
    rows = [(f"[`{name}`]({linked.get(name, '')}#{anchors[name]})", _summary(package, name)) for name in _exports(page)]
    yield from table((f"name in `{page.package}`", "description"), rows)
    for name in own:
        yield from _entry(package, name, _heading(own, name), is_made=name in page.made)
    for written, module, name in page.values:
        yield from _class(name, getattr(importlib.import_module(module), name), f"`{written}`.")
    if page.parts:
        yield from _parts(page.parts)


def _parts(names: tuple[str, ...]) -> Iterator[str]:
    """Yield the table of modules: what each does, and what it defines."""
    *_, package = [importlib.import_module(name) for name in names]
    yield f"\n## {package.__name__.rpartition('.')[2].capitalize()}\n\n{inspect.getdoc(package)}\n\n"
    rows = []
    for module in (part for name in names for part in _modules_in(name)):
        own = getattr(module, "__all__", None) or [
            one for one, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
        ]
        doc = " ".join((inspect.getdoc(module) or "").split())
        rows.append((f"`{module.__name__}`", doc, ", ".join(f"`{one}`" for one in own if not one.startswith("_"))))
    yield from table(("module", "responsibility", "names"), rows)


def _modules_in(name: str) -> Iterator[ModuleType]:
    """Yield a module, or the modules of a package."""
    module = importlib.import_module(name)
    if not hasattr(module, "__path__"):
        yield module
        return
    for found in pkgutil.iter_modules(module.__path__, f"{name}."):
        yield importlib.import_module(found.name)


def _heading(names: list[str], name: str) -> str:
    """Return the heading of a name: anchors do not tell `tool` from `Tool`."""
    return f"{name}, the function" if name.islower() and name.capitalize() in names else name


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _summary(package: ModuleType, name: str) -> str:
    value = getattr(package, name)
    if inspect.isclass(value) or _definition(value) is not None:
        first = _alias(value, name) or _text(value).partition("\n\n")[0]
    else:
        first = _source_comment(package, name) or (_text(type(value)) if _is_own(type(value)) else "")
    return re.sub(r":$", ".", " ".join(first.split()))


def _is_own(cls: type) -> bool:
    return cls.__module__.startswith("reyn.")


def _alias(value: Any, name: str) -> str:
    """Return what a second name of a class stands for."""
    written = getattr(value, "__name__", name)
    return f"The same as `{written}`." if inspect.isclass(value) and written != name else ""


def _entry(package: ModuleType, name: str, heading: str, *, is_made: bool) -> Iterator[str]:
    value = getattr(package, name)
    if alias := _alias(value, name):
        yield f"\n## {heading}\n\n{alias}\n"
    elif inspect.isclass(value):
        yield from _class(name, value, is_made=is_made)
    elif (node := _definition(value)) is not None:
        yield f"\n## {heading}\n\n"
        yield from _function(node, value, name)
    else:
        summary = _summary(package, name)
        yield f"\n## {name}\n\n" + (f"{summary}\n\n" if summary else "")
        yield f"```py\n{_assigned(package, name)}\n```\n"


# -- classes ------------------------------------------------------------------------------------------


def _class(name: str, cls: type, opening: str = "", *, is_made: bool = False) -> Iterator[str]:
    doc = _text(cls)
    yield f"\n## {name}\n\n{opening}{' ' if opening and doc else ''}{_prose(doc)}\n"
    if (is_made or _items(doc, "Args")) and (node := _definition(inspect.getattr_static(cls, "__init__"))) is not None:
        yield f"\n```py\n{_signature(node, '__init__')}\n```\n"
        if arguments := _rows(doc, "Args"):
            yield "\n"
            yield from table(("argument", "meaning"), arguments)
    rows = [] if issubclass(cls, Synchronous) else _attributes(cls)
    used = [column for column in range(3) if any(row[column] for row in rows)]
    if rows:
        yield "\n"
        head = ("field", "type", "meaning")
        shown = [tuple(row[column] for column in used) for row in rows]
        yield from table(tuple(head[column] for column in used), shown)
    for method, node, value in _methods(cls):
        yield f"\n### {name}.{method}\n\n"
        yield from _function(node, value, method)


def _attributes(cls: type) -> list[tuple[str, str, str]]:
    """Return name, type and meaning of the public attributes of a class: fields, documented ones, and properties."""
    kinds = dict(_fields(cls))
    meanings: dict[str, str] = {}
    for one in _own_classes(cls):
        meanings |= _items(_text(one), "Attributes")
    for name, kind, text in _properties(cls):
        kinds.setdefault(name, kind)
        meanings.setdefault(name, text)
    names = dict.fromkeys([*kinds, *meanings])
    return [(f"`{name}`", _code(kinds.get(name, "")), meanings.get(name, "")) for name in names]


def _code(text: str) -> str:
    """Return code for a cell of a table: a `|` would end the cell, and `\\|` is shown as it is written."""
    escaped = html.escape(text, quote=False).replace("|", "&#124;")
    return f"<code>{escaped}</code>" if "|" in text else f"`{text}`" * bool(text)


def _own_classes(cls: type) -> list[type]:
    """Return a class and its bases of Reyn, the most general first."""
    return [one for one in reversed(cls.__mro__) if _is_own(one)]


@cache
def _node(cls: type) -> ast.ClassDef | None:
    try:
        [node] = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError):
        return None
    return node if isinstance(node, ast.ClassDef) else None


def _fields(cls: type) -> Iterator[tuple[str, str]]:
    """Yield the declared fields of a class with their types."""
    for one in _own_classes(cls):
        for statement in getattr(_node(one), "body", ()):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                kind = _unparse(statement.annotation)
                if not statement.target.id.startswith("_") and not kind.startswith("ClassVar"):
                    yield statement.target.id, kind


def _members(cls: type) -> dict[str, Any]:
    """Return the public members of a class, its own before those of its bases."""
    found: dict[str, Any] = {}
    for one in reversed(_own_classes(cls)):
        found = {**found, **{name: value for name, value in vars(one).items() if name not in found}}
    return {name: value for name, value in found.items() if not name.startswith("_")}


def _properties(cls: type) -> Iterator[tuple[str, str, str]]:
    for name, value in _members(cls).items():
        getter = value.fget if isinstance(value, property) else getattr(value, "func", None)
        if getter is not None and inspect.getdoc(getter) and (node := _definition(getter)) is not None:
            kind = _unparse(node.returns) if node.returns is not None else ""
            yield name, kind, " ".join(_text(getter).split())


def _methods(cls: type) -> Iterator[tuple[str, FunctionDef, Any]]:
    if issubclass(cls, Synchronous):
        return
    for name, value in _members(cls).items():
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if inspect.isfunction(function) and function.__doc__ and not name.startswith("test_"):
            node = _definition(function)
            if node is not None:
                yield name, node, function


# -- functions ----------------------------------------------------------------------------------------


def _definition(value: Any) -> FunctionDef | None:
    """Return the definition of a function as it is written; of several forms the last, which has the options."""
    function = inspect.unwrap(value)
    if not inspect.isfunction(function):
        return None
    function = (get_overloads(function) or [function])[-1]
    [node] = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    return node if isinstance(node, FunctionDef) else None


def _function(node: FunctionDef, value: Any, name: str) -> Iterator[str]:
    doc = _text(value)
    yield f"```py\n{_signature(node, name)}\n```\n\n{_prose(doc)}\n"
    for section, head in (("Args", ("argument", "meaning")), ("Raises", ("error", "when"))):
        if rows := _rows(doc, section):
            yield "\n"
            yield from table(head, rows)
    for section in ("Returns", "Yields"):
        if text := _section(doc, section):
            yield f"\n{section}: {text}\n"


def _signature(node: FunctionDef, name: str) -> str:
    """Return a stub of a function, without `self`; with one argument a line if it is long."""
    written = node.args
    positional = [*written.posonlyargs, *written.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(written.defaults))
    parts = [_argument(one, default) for one, default in zip(positional, [*defaults, *written.defaults], strict=True)]
    if positional and positional[0].arg in ("self", "cls"):
        del parts[0]
    if written.vararg is not None:
        parts.append(f"*{_argument(written.vararg, None)}")
    elif written.kwonlyargs:
        parts.append("*")
    parts += [_argument(one, default) for one, default in zip(written.kwonlyargs, written.kw_defaults, strict=True)]
    if written.kwarg is not None:
        parts.append(f"**{_argument(written.kwarg, None)}")
    start = f"{'async ' if isinstance(node, ast.AsyncFunctionDef) else ''}def {name}("
    end = f") -> {_unparse(node.returns)}: ..." if node.returns is not None else "): ..."
    line = start + ", ".join(parts) + end
    return line if len(line) <= WIDTH else f"{start}\n" + "".join(f"    {part},\n" for part in parts) + end


def _unparse(node: ast.AST) -> str:
    """Return code with the quotes that the formatter of the repository writes."""
    text = ast.unparse(node)
    return text if '"' in text else text.replace("'", '"')


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg
    if argument.annotation is not None:
        text += f": {_unparse(argument.annotation)}"
    if default is not None:
        text += f" = {_unparse(default)}" if argument.annotation is not None else f"={_unparse(default)}"
    return text


# -- docstrings ---------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    """Return the docstring that a class or a function has itself."""
    doc = value.__doc__ if not inspect.isclass(value) else vars(value).get("__doc__")
    return inspect.cleandoc(doc or "")


def _prose(doc: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", SECTION.sub("", f"{doc}\n")).strip()


def _section(doc: str, name: str) -> str:
    found = next((match[2] for match in SECTION.finditer(f"{doc}\n") if match[1] == name), "")
    return " ".join(textwrap.dedent(found).split())


def _rows(doc: str, section: str) -> list[tuple[str, str]]:
    return [(f"`{name}`", text) for name, text in _items(doc, section).items()]


def _items(doc: str, name: str) -> dict[str, str]:
    """Return the entries of a section by name: what an argument means, when an error is raised."""
    block = next((textwrap.dedent(match[2]) for match in SECTION.finditer(f"{doc}\n") if match[1] == name), "")
    entries = re.split(r"\n(?=\S)", block.strip()) if block.strip() else []
    pairs = (" ".join(entry.split()).partition(": ") for entry in entries)
    return {one: text for one, _, text in pairs}


def _assignment(package: ModuleType, name: str) -> tuple[ast.stmt, ast.stmt | None]:
    """Return the statement that gives a name its value, and the one after it."""
    for module in _modules_of(package, name):
        body = ast.parse(inspect.getsource(module)).body
        for statement, following in zip(body, [*body[1:], None], strict=True):
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return statement, following
    raise LookupError(f"{package.__name__}.{name}")


def _modules_of(package: ModuleType, name: str) -> Iterator[ModuleType]:
    """Yield the modules through which a package imports a name."""
    yield package
    for node in ast.walk(ast.parse(inspect.getsource(package))):
        if isinstance(node, ast.ImportFrom) and node.module and any(one.name == name for one in node.names):
            yield from _modules_of(importlib.import_module(node.module), name)


def _source_comment(package: ModuleType, name: str) -> str:
    """Return the string below an assignment, which documents it."""
    match _assignment(package, name)[1]:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return inspect.cleandoc(text)
    return ""


def _assigned(package: ModuleType, name: str) -> str:
    statement = _assignment(package, name)[0]
    if isinstance(statement, ast.AnnAssign):
        return f"{name}: {_unparse(statement.annotation)}"
    line = _unparse(statement)
    start, _, value = line.partition(" = ")
    return line if len(line) <= WIDTH else f"{start} = (\n    " + value.replace(" | ", "\n    | ") + "\n)"
