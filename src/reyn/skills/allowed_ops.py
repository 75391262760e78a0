"""The ops that a phase allows, those that it must do, and those that fill fields of its artifact.

What a name stands for, and why a phase cannot have it. A source `ops.file.write.path` is the path of the last file that
a visit wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from reyn.documents import Document, KeyPath, nearest
from reyn.errors import Finding, codes

if TYPE_CHECKING:
    from reyn.skills.front_matter import PhaseFrontMatter
    from reyn.skills.values import MustAny
    from reyn.vocabulary import OpForm, Vocabulary

_UNKNOWN_OP_FIX = "correct the name, or install the package that provides the op"


def members(kind: str, vocabulary: Vocabulary) -> list[str]:
    """Return the op kinds that a name stands for: `mcp:files/*` is every tool of the server `files`."""
    if not kind.endswith("/*"):
        return [kind]
    return sorted(known for known in vocabulary.op_kinds if known.startswith(kind[:-1]))


def check_allowed_op(
    document: Document, index: int, kind: str, vocabulary: Vocabulary, *, is_conversation: bool
) -> Finding | None:
    """Return the finding about an entry of `allowed_ops` in the front matter of a phase, if there is one."""
    path = ("allowed_ops", index)
    if kind.endswith("/*") and members(kind, vocabulary):
        return None
    spec = vocabulary.op(kind)
    if spec is None:
        fix = unknown_op_fix(kind, vocabulary.op_kinds)
        return document.finding(codes.UNKNOWN_OP, f"unknown op `{kind}`", *path, fix=fix)
    if not vocabulary.is_offered(kind):
        fix = f"write a step: `- {kind}: {{…}}`"
        return document.finding(codes.UNKNOWN_OP, f"no phase can allow `{kind}`", *path, fix=fix)
    if vocabulary.is_reserved(kind):
        message = f"op `{kind}` is {spec.why_unavailable}; Reyn does not offer it to the model"
        return document.finding(codes.UNSUPPORTED, message, *path, fix=spec.advice, severity="warning")
    if spec.is_for_conversations and not is_conversation:
        message = f"op `{kind}` is for conversations, but the phase is not one"
        return document.finding(codes.CONVERSATION_OP, message, *path, fix="set `conversation: true`, or remove it")
    return None


def unknown_op_fix(kind: str, known: Iterable[str]) -> str:
    """Return how to correct an unknown op kind: a tool of an MCP server may only wait for its acceptance."""
    known = tuple(known)
    op = kind.partition(".")[0]
    if op in known and not any(one.startswith(f"{op}.") for one in known):  # a form, where only ops are known
        return f"write `{op}`, which allows all of its forms; permissions limit what they may act on"
    near = nearest(kind, known)
    prefix, _, server = kind.partition("/")[0].partition(":")
    if prefix != "mcp" or not server:
        return near or _UNKNOWN_OP_FIX
    accept = f"accept the tools of the MCP server `{server}`; a new server has to be added first"
    return f"{near} Otherwise {accept}" if near else accept


def must_groups(must: tuple[str, ...] | MustAny, vocabulary: Vocabulary) -> tuple[tuple[str, ...], ...]:
    """Return `must` as groups, of each of which one op has to succeed; `mcp:files/*` is a group, too."""
    groups = [[name] for name in must] if isinstance(must, tuple) else [list(must.any)]
    return tuple(tuple(member for name in group for member in members(name, vocabulary)) for group in groups)


def check_must(document: Document, front: PhaseFrontMatter, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Report the entries of `must` that no visit of the phase can do."""
    allowed = {member for kind in front.allowed_ops for member in members(kind, vocabulary)}
    path: KeyPath = ("must",) if isinstance(front.must, tuple) else ("must", "any")
    for index, written in enumerate(front.must if isinstance(front.must, tuple) else front.must.any):
        for name in members(written, vocabulary) or [written]:
            finding = _must_finding(document, name, allowed, vocabulary, (*path, index))
            if finding is None and not front.max_act_turns:
                message = f"no visit can do `{name}`: `max_act_turns` is 0"
                finding = document.finding(codes.MUST_IMPOSSIBLE, message, *path, index, fix="raise `max_act_turns`")
            if finding is not None:
                yield finding
                break


def _must_finding(
    document: Document, name: str, allowed: set[str], vocabulary: Vocabulary, path: KeyPath
) -> Finding | None:
    kind = name if vocabulary.op(name) is not None else name.rpartition(".")[0]
    if not vocabulary.forms_of(name) and not vocabulary.is_reserved(kind):
        known = {form for one in vocabulary.op_kinds for form in (one, *vocabulary.forms_of(one))}
        fix = unknown_op_fix(name, sorted(known))
        return document.finding(codes.UNKNOWN_OP, f"unknown op `{name}`", *path, fix=fix)
    if vocabulary.is_reserved(kind):
        spec = vocabulary.op(kind)
        assert spec is not None
        message = f"no visit can do `{name}`: it is {spec.why_unavailable}"
        return document.finding(codes.MUST_IMPOSSIBLE, message, *path, fix=spec.advice or "remove it")
    if kind not in allowed:
        message, fix = f"no visit can do `{name}`: the phase does not allow it", f"add `{kind}` to `allowed_ops`"
        return document.finding(codes.MUST_IMPOSSIBLE, message, *path, fix=fix)
    return None


# -- sources of fields that ops fill ----------------------------------------------------------------


OPS = "ops."
"""Begins every source."""


class FillSource(NamedTuple):
    """A value of the last op of a form that succeeded in a visit.

    Attributes:
        name: The name of the form, such as `file.write`.
        form: The form.
        path: The names of the fields that lead to the value, in the result of the op or else in its arguments.
    """

    name: str
    form: OpForm
    path: tuple[str, ...]

    def value(self, result: dict[str, Any], args: dict[str, Any]) -> tuple[Any, ...]:
        """Return the value in a result or else in the arguments, as the only item; empty if neither has it."""
        return _at(result, self.path) or _at(self.form.complete(args), self.path)


def parse_source(text: str, vocabulary: Vocabulary) -> FillSource | None:
    """Return what a source means; `None` if it does not name one form of an op and a field.

    The longest name of an op counts, because the name of a tool may contain dots.
    """
    words = text.removeprefix(OPS).split(".") if text.startswith(OPS) else []
    for end in range(len(words) - 1, 0, -1):
        forms = vocabulary.forms_of(".".join(words[:end]))
        if len(forms) == 1:
            [(name, form)] = forms.items()
            return FillSource(name, form, tuple(words[end:]))
    return None


def _at(value: Any, path: tuple[str, ...]) -> tuple[Any, ...]:
    for word in path:
        if not isinstance(value, dict) or word not in value:
            return ()
        value = value[word]
    return (value,)
