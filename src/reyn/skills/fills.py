"""Sources of fields that ops fill: `ops.file.write.path` is the path of the last file that a visit wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from reyn.vocabulary import OpForm, Vocabulary

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
