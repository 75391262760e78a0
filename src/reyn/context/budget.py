"""Token budgets: truncate a text, or several sections by their priority. No result ever exceeds its budget.

A budget holds for the joined text, as the counter in use counts it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from reyn.context.tokens import CHARS, SUFFIX, TokenCounter, longest_fitting, truncate_to_token_budget

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


class FittedText(msgspec.Struct, frozen=True):
    """A text that was counted and truncated to a budget.

    Attributes:
        original_tokens: The tokens of the whole text.
        tokens: The tokens of what remains; more than the budget if it cannot be truncated so far.
        sections: The cost of each section.
        texts: What remains of each section; `None` if it was not truncated.
        text: What remains of a text that is not assembled from sections.
    """

    original_tokens: int
    tokens: int
    sections: tuple[SectionCost, ...] = ()
    texts: tuple[str | None, ...] = ()
    text: str | None = None


def apply_context_budget(text: str, max_tokens: int, counter: TokenCounter = CHARS) -> tuple[str, ContextBudgetResult]:
    """Truncate a text to a budget; return the text with the token counts before and after. A budget of 0 or less is
    unlimited."""
    fitted = truncate_to_token_budget(text, max_tokens, counter)
    return fitted, ContextBudgetResult(
        counter.count(text), max_tokens, counter.count(fitted), was_truncated=fitted != text
    )


Unit = Literal["line", "item", "sentence", "text"]


class Section(msgspec.Struct, frozen=True):
    """A part of an assembled text. In a list of sections, the oldest comes first.

    Attributes:
        name: The name under which its cost is reported.
        text: Its text.
        priority: Its importance; the section with the lowest is truncated first.
        minimum: Tokens that it keeps as long as other sections can be truncated instead.
        never_truncate: Whether it is truncated only if it exceeds the budget with nothing else left.
        unit: What is removed at once: lines, items (a line with the indented lines below it), sentences, or, of a
            `text`, lines as long as that removes less than half of what fits, else words.
        marker: Follows the text if it is truncated; by default `...`, or the number of lines or items removed.
    """

    name: str
    text: str
    priority: int = 0
    minimum: int = 0
    never_truncate: bool = False
    unit: Unit = "line"
    marker: str = ""


class Assembly(msgspec.Struct, frozen=True):
    """The text of several sections within a budget, the text of each, and its cost."""

    text: str
    tokens: int
    budget: int
    counter: str
    sections: tuple[SectionCost, ...] = ()
    texts: tuple[str, ...] = ()

    @property
    def was_truncated(self) -> bool:
        return any(section.was_truncated for section in self.sections)


def assemble_sections(
    sections: Sequence[Section], budget: int, counter: TokenCounter = CHARS, separator: str = SEPARATOR
) -> Assembly:
    """Join sections to a text of at most `budget` tokens. A budget of 0 or less is unlimited.

    The least important section is truncated first, among equals the oldest: to its minimum, as long as another one
    remains; then without regard to minimums; sections with `never_truncate` come last. Lines and items are removed
    whole, from the end of a section, and `(+n more)` says how many.
    """
    texts = [section.text for section in sections]
    original = [counter.count(text) for text in texts]
    joined = _joined(texts, separator)
    if budget > 0 and counter.count(joined) > budget:
        order = sorted(range(len(sections)), key=lambda index: (sections[index].priority, index))
        fit = _SectionFitting(list(sections), texts, budget, counter, separator)
        ordinary = [index for index in order if not sections[index].never_truncate]
        fit.shrink(ordinary, respect_minimum=True)
        fit.shrink(ordinary, respect_minimum=False)
        never = [index for index in order if sections[index].never_truncate]
        fit.shrink(never, respect_minimum=False)
        fit.drop([*ordinary, *never])
        texts, joined = fit.texts, _joined(fit.texts, separator)
    costs = tuple(
        SectionCost(
            section.name, before, before if text == section.text else max(0, min(before - 1, counter.count(text)))
        )
        for section, before, text in zip(sections, original, texts, strict=True)
    )
    return Assembly(joined, counter.count(joined), budget, counter.name, costs, tuple(texts))


def _joined(texts: Sequence[str], separator: str) -> str:
    return separator.join(text for text in texts if text)


_MAX_STEPS = 8
"""How many boundaries beyond the first result are tried; more would gain less than a line."""


class _SectionFitting:
    """Sections while they are being truncated."""

    def __init__(
        self, sections: list[Section], texts: list[str], budget: int, counter: TokenCounter, separator: str
    ) -> None:
        self.sections = sections
        self.texts = texts
        self._budget = budget
        self._counter = counter
        self._separator = separator

    def shrink(self, order: Sequence[int], *, respect_minimum: bool) -> None:
        """Truncate sections in this order until all of them fit."""
        for index in order:
            if self._excess(index, self.texts[index]) <= 0:
                return
            minimum = self.sections[index].minimum if respect_minimum else 0
            part = self._longest(index, minimum)
            if self._counter.count(part) < self._counter.count(self.texts[index]):
                self.texts[index] = part

    def drop(self, order: Sequence[int]) -> None:
        """Remove sections until the rest fits. A counter that counts fewer tokens for a longer text may need it."""
        for index in order:
            if self._excess(index, self.texts[index]) <= 0:
                return
            self.texts[index] = ""

    def _longest(self, index: int, minimum: int) -> str:
        """Return the longest part of a section with which everything fits; at least `minimum` tokens of it."""
        section = self.sections[index]
        room = -self._excess(index, "")
        for cuts in _cuts(section):
            part = cuts.part(self._fit(index, cuts, room))
            if cuts.is_last or self._is_enough(section, part, room):
                break
        if self._counter.count(part) >= minimum:
            return part
        size = cuts.size - 1
        below = longest_fitting(size, lambda number: self._counter.count(cuts.part(number)), minimum - 1)
        return cuts.part(min(below + 1, size))

    def _is_enough(self, section: Section, part: str, room: int) -> bool:
        """Return whether a part is worth keeping, rather than one that ends at a finer kind of boundary."""
        return bool(part) and (section.unit != "text" or 2 * self._counter.count(part) >= room)

    def _fit(self, index: int, cuts: _Cuts, room: int) -> int:
        """Return the number of the longest part with which everything fits.

        Counts the part alone first, because counting everything is expensive. Counts of joined texts differ from the
        sum of their counts by a few tokens; those are corrected afterwards.
        """
        size, number, correction = cuts.size - 1, 0, 0
        for _ in range(3):
            if room - correction <= 0:
                return 0
            number = longest_fitting(size, lambda one: self._counter.count(cuts.part(one)), room - correction)
            excess = self._excess(index, cuts.part(number))
            if excess <= 0:
                break
            correction += excess
        while number and self._excess(index, cuts.part(number)) > 0:
            number //= 2
        for _ in range(_MAX_STEPS):
            if number + 1 >= size or self._excess(index, cuts.part(number + 1)) > 0:
                break
            number += 1
        return number

    def _excess(self, index: int, part: str) -> int:
        """Return by how many tokens everything exceeds the budget if this is what remains of a section."""
        texts = [part if number == index else text for number, text in enumerate(self.texts)]
        return self._counter.count(_joined(texts, self._separator)) - self._budget


class _Cuts(NamedTuple):
    """The ways to truncate a text at one kind of boundary: `size` of them, from nothing to all of it."""

    size: int
    part: Callable[[int], str]
    is_last: bool = True
    """Whether there is no finer kind of boundary to try."""


_ITEM = re.compile(r"\n(?=\S)")
_SENTENCE = re.compile(r"(?<=\.)(?=[ \n])")
_WORD = re.compile(r"(?<=\S)(?=\s)")
_LINE = re.compile(r"(?<=[^\n])(?=\n)")


def _cuts(section: Section) -> list[_Cuts]:
    """Return the kinds of boundaries at which a text can be truncated, coarse ones first."""
    text, unit = section.text, section.unit
    if unit in ("sentence", "text"):
        coarse, words = (
            [match.start() for match in boundary.finditer(text)]
            for boundary in (_SENTENCE if unit == "sentence" else _LINE, _WORD)
        )
        return [
            _prefixes(section, coarse, is_last=False),
            _prefixes(section, words, is_last=False),
            _prefixes(section, range(1, len(text)), is_last=True),
        ]
    units = text.split("\n") if unit == "line" else _ITEM.split(text)

    def part(number: int) -> str:
        if number == len(units):
            return text
        return "\n".join([*units[:number], section.marker or f"(+{len(units) - number} more)"]) if number else ""

    return [_Cuts(len(units) + 1, part)]


def _prefixes(section: Section, ends: Sequence[int], *, is_last: bool) -> _Cuts:
    def part(number: int) -> str:
        if number > len(ends):
            return section.text
        return section.text[: ends[number - 1]] + (section.marker or SUFFIX) if number else ""

    return _Cuts(len(ends) + 2, part, is_last)


def section_costs(parts: Sequence[tuple[str, str]], length: int, counter: TokenCounter) -> tuple[SectionCost, ...]:
    """Return the tokens of sections that were joined and then truncated to `length` code points.

    Args:
        parts: Name and text of each section.
        length: What remains of the joined text.
        counter: Counts the tokens.
    """
    costs, start = [], 0
    for name, text in parts:
        whole = counter.count(text)
        remaining = max(0, min(len(text), length - start))
        tokens = whole if remaining == len(text) else min(whole, counter.count(text[:remaining]))
        costs.append(SectionCost(name, whole, tokens))
        start += len(text) + len(SEPARATOR)
    return tuple(costs)
