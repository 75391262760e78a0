"""Token budgets: truncate a text, or several sections by their priority. No result ever exceeds its budget."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from reyn.context.tokens import CHARS, SUFFIX, estimate_tokens, truncate_to_token_budget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reyn.context.tokens import TokenCounter

SEPARATOR = "\n\n"
"""Stands between two sections."""


class ContextBudgetResult(msgspec.Struct, frozen=True):
    """The effect of a budget on a text.

    Attributes:
        original_tokens: The tokens of the whole text.
        budget_tokens: The budget; 0 or less is unlimited.
        truncated_tokens: The tokens of the result; those of the whole text if it was not truncated.
        was_truncated: Whether the result differs from the text.
    """

    original_tokens: int
    budget_tokens: int
    truncated_tokens: int
    was_truncated: bool


class SectionCost(msgspec.Struct, frozen=True):
    """The tokens that a section of a text would take, and those that it took."""

    name: str
    original_tokens: int
    tokens: int

    @property
    def was_truncated(self) -> bool:
        return self.tokens < self.original_tokens


class FrameSection(SectionCost, frozen=True):
    """A section of a frame. `parts` are the costs within the section, where they are recorded."""

    parts: tuple[SectionCost, ...] = ()


def apply_context_budget(text: str, max_tokens: int) -> tuple[str, ContextBudgetResult]:
    """Truncate a text to a budget; return it with what the budget changed. A budget of 0 or less is unlimited."""
    fitted = truncate_to_token_budget(text, max_tokens)
    return fitted, ContextBudgetResult(
        estimate_tokens(text), max_tokens, estimate_tokens(fitted), was_truncated=fitted != text
    )


Unit = Literal["line", "item", "sentence"]


class Section(msgspec.Struct, frozen=True):
    """A part of an assembled text. In a list of sections, the oldest comes first.

    Attributes:
        name: The name under which its cost is reported.
        text: Its text.
        priority: Its importance; the section with the lowest is truncated first.
        minimum: Tokens that it keeps as long as other sections can be truncated instead.
        never_truncate: Whether it is truncated only if it exceeds the budget with nothing else left.
        unit: What is removed at once: lines, items (a line with the indented lines below it) or sentences.
    """

    name: str
    text: str
    priority: int = 0
    minimum: int = 0
    never_truncate: bool = False
    unit: Unit = "line"


class Assembly(msgspec.Struct, frozen=True):
    """The text of several sections within a budget, and the cost of each section."""

    text: str
    tokens: int
    budget: int
    counter: str
    sections: tuple[SectionCost, ...] = ()

    @property
    def was_truncated(self) -> bool:
        return any(section.was_truncated for section in self.sections)


def assemble_sections(sections: Sequence[Section], budget: int, counter: TokenCounter = CHARS) -> Assembly:
    """Join sections to a text of at most `budget` tokens. A budget of 0 or less is unlimited.

    The least important section is truncated first, among equals the oldest: to its minimum, as long as another one
    remains; then without regard to minimums; sections with `never_truncate` come last. Lines and items are removed
    whole, from the end of a section, and `(+n more)` says how many.
    """
    texts = [section.text for section in sections]
    original = [counter.count(text) for text in texts]
    joined = _joined(texts)
    if budget > 0 and counter.count(joined) > budget:
        order = sorted(range(len(sections)), key=lambda index: (sections[index].priority, index))
        fit = _Fitting(list(sections), texts, budget, counter)
        ordinary = [index for index in order if not sections[index].never_truncate]
        fit.shrink(ordinary, respect_minimum=True)
        fit.shrink(ordinary, respect_minimum=False)
        fit.shrink([index for index in order if sections[index].never_truncate], respect_minimum=False)
        texts, joined = fit.texts, _joined(fit.texts)
    costs = tuple(
        SectionCost(section.name, before, min(before, counter.count(text)))
        for section, before, text in zip(sections, original, texts, strict=True)
    )
    return Assembly(joined, counter.count(joined), budget, counter.name, costs)


def _joined(texts: Sequence[str]) -> str:
    return SEPARATOR.join(text for text in texts if text)


class _Fitting:
    """Sections while they are being truncated."""

    def __init__(self, sections: list[Section], texts: list[str], budget: int, counter: TokenCounter) -> None:
        self.sections = sections
        self.texts = texts
        self._budget = budget
        self._counter = counter

    def shrink(self, order: Sequence[int], *, respect_minimum: bool) -> None:
        """Truncate sections in this order until all of them fit."""
        for index in order:
            if self._fits(index, self.texts[index]):
                return
            minimum = self.sections[index].minimum if respect_minimum else 0
            part = self._longest(index, minimum)
            if self._counter.count(part) < self._counter.count(self.texts[index]):
                self.texts[index] = part

    def _longest(self, index: int, minimum: int) -> str:
        """Return the longest part of a section with which everything fits; at least `minimum` tokens of it."""
        section = self.sections[index]
        for cuts in _cuts(section.text, section.unit):
            part = cuts.part(_last(cuts, lambda part: self._fits(index, part)))
            if part or cuts.is_last:
                break
        if self._counter.count(part) >= minimum:
            return part
        below = _last(cuts, lambda part: self._counter.count(part) < minimum)
        return cuts.part(min(below + 1, cuts.size - 1))

    def _fits(self, index: int, part: str) -> bool:
        texts = [part if number == index else text for number, text in enumerate(self.texts)]
        return self._counter.count(_joined(texts)) <= self._budget


class _Cuts(NamedTuple):
    """The ways to truncate a text at one kind of boundary: `size` of them, from nothing to all of it."""

    size: int
    part: Callable[[int], str]
    is_last: bool = True
    """Whether there is no finer kind of boundary to try."""


_ITEM = re.compile(r"\n(?=\S)")
_SENTENCE = re.compile(r"(?<=\.)(?=[ \n])")
_WORD = re.compile(r"(?<=\S)(?=\s)")


def _cuts(text: str, unit: Unit) -> list[_Cuts]:
    """Return the kinds of boundaries at which a text can be truncated, coarse ones first."""
    if unit == "sentence":
        sentences, words = ([match.start() for match in found.finditer(text)] for found in (_SENTENCE, _WORD))
        return [
            _prefixes(text, sentences, is_last=False),
            _prefixes(text, words, is_last=False),
            _prefixes(text, range(1, len(text)), is_last=True),
        ]
    units = text.split("\n") if unit == "line" else _ITEM.split(text)

    def part(number: int) -> str:
        if number == len(units):
            return text
        return "\n".join([*units[:number], f"(+{len(units) - number} more)"]) if number else ""

    return [_Cuts(len(units) + 1, part)]


def _prefixes(text: str, ends: Sequence[int], *, is_last: bool) -> _Cuts:
    def part(number: int) -> str:
        if number > len(ends):
            return text
        return text[: ends[number - 1]] + SUFFIX if number else ""

    return _Cuts(len(ends) + 2, part, is_last)


def _last(cuts: _Cuts, is_met: Callable[[str], bool]) -> int:
    """Return the number of the longest part that meets a condition, which shorter parts meet as well; 0 if none."""
    low, high = 0, cuts.size - 1
    while low < high:
        middle = (low + high + 1) // 2
        if is_met(cuts.part(middle)):
            low = middle
        else:
            high = middle - 1
    return low


def section_costs(parts: Sequence[tuple[str, str]], length: int) -> tuple[SectionCost, ...]:
    """Return the tokens of sections that were joined and then truncated to `length` code points.

    Args:
        parts: Name and text of each section.
        length: What remains of the joined text.
    """
    costs, start = [], 0
    for name, text in parts:
        remaining = text[: max(0, length - start)]
        costs.append(SectionCost(name, estimate_tokens(text), estimate_tokens(remaining)))
        start += len(text) + len(SEPARATOR)
    return tuple(costs)
