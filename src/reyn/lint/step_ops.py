"""Rules on the ops of `run_op` steps: their arguments are known when the skill is written, so they are checked then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.documents import nearest
from reyn.jsonschema import compile_schema
from reyn.skills import codes
from reyn.skills.front_matter import step_lists

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.documents import KeyPath
    from reyn.errors import Finding
    from reyn.skills import LoadResult
    from reyn.vocabulary import Vocabulary


def step_arguments(loaded: LoadResult, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Report ops of steps that no run can execute: an unknown, missing or invalid argument."""
    for file in ("skill.md", *loaded.folder.own_files("phases", ".md")):
        document = loaded.folder.read(file)
        for path, step in _run_ops(document.value) if document else ():
            for wrong, where in _errors(step, vocabulary):
                if document is not None:
                    yield document.finding(codes.BAD_STEP, wrong, *path, *where)


def _run_ops(value: Any) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """Yield the arguments of every `run_op` step of a file, also of one that `iterate` applies, with their paths."""
    for path, steps in step_lists(value):
        for index, step in enumerate(steps):
            inner = step.get("iterate") if isinstance(step, dict) else None
            applied = inner.get("apply") if isinstance(inner, dict) else None
            for found, where in ((step, ()), (applied, ("iterate", "apply"))):
                arguments = found.get("run_op") if isinstance(found, dict) else None
                if isinstance(arguments, dict) and isinstance(arguments.get("op"), dict):
                    yield (*path, index, *where, "run_op"), arguments


def _errors(step: dict[str, Any], vocabulary: Vocabulary) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what is wrong with the op of a step, and where. Values that come from the artifact are not known yet."""
    op, bound = step["op"], step.get("args_from")
    bound = bound if isinstance(bound, dict) else {}
    spec = vocabulary.op(str(op.get("kind")))
    if spec is None or not spec.forms or not spec.is_step or "op" in bound:
        return  # a kind that is unknown, or no step, is reported where the skill is loaded
    form = vocabulary.form_of(op)
    if form is None:
        names = ", ".join(f"`{one.op}`" for one in spec.forms)
        yield f"`{spec.kind}` needs `op`: one of {names}", ("op",)
        return
    known = form.arguments["properties"]
    for where, arguments in (("op", op), ("args_from", bound)):
        for name in arguments:
            if name not in known:
                hint = nearest(str(name), known)
                yield f"`{spec.kind}` has no argument `{name}`{f'; {hint}' if hint else ''}", (where, str(name))
    literal = {name: value for name, value in op.items() if name not in bound and name in known}
    required = [name for name in form.arguments["required"] if name not in bound]
    error = compile_schema(form.arguments | {"required": required}).first_error(literal)
    if error is not None:
        yield f"`{spec.kind}`: {error.path('op')}: {error.message}", ("op",)
