"""The parts of a message: what each asks for, and which of them the acts of a visit have dealt with.

Nothing here asks a model. A part is dealt with if an act took its words; `acting` decides what to do about the rest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from reyn.models.protocol import PerformedOp

MIN_WORDS = 3
"""A part of a message with fewer words asks for nothing of its own."""
_SENTENCES = re.compile(r"(?<=[.!?;])\s+|\n+")
_CLAUSES = re.compile(r",?\s+(?:and|then|and then)\s+")
_ITEMS = re.compile(r",\s+")
_QUOTE = re.compile(r"""(?<!\w)(?:'[^'\n]{6,}'|"[^"\n]{6,}"|“[^”\n]{6,}”)(?!\w)""")
_BEFORE_COLON = re.compile(r"\A([^\n:]+): +(?=\S)")
_NUMBER_OR_PATH = re.compile(r"\d|\w[/_.@:]+\w")
_HANDED_OVER = "…"
"""What stands for a text on which the model works."""
_BLANK = "\x00"
_FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a about after again all also am an and any are as at be been before both but by can could did do does for
        from had has have he her him his how i if in into is it its let me my no not of on or our out please she should
        so some than that the their them then there these they this those to too up us was we were what when where
        which who will with would you your""",
    )
)
"""English words that say nothing about what a part is about."""


def wish(text: str) -> str:
    """Return a message without a text that it hands over: a quote, or what follows a colon. It has another topic."""
    text = _QUOTE.sub(f"'{_HANDED_OVER}'", text)
    found = _BEFORE_COLON.match(text)
    return f"{found[1]}: {_HANDED_OVER}" if found and len(found[1].split()) >= MIN_WORDS else text


def parts_left(text: str, done: Sequence[PerformedOp]) -> tuple[str, ...]:
    """Return the parts of a message that no act has dealt with; all of it, if there was no act that succeeded.

    An act has dealt with a part if its arguments or its result have a word that no other part has. If they do not show
    what an act has dealt with, nothing is left. Words without content do not count.
    """
    acts = [act for act in done if act.is_ok]
    if not acts:
        return (text,)
    parts = [part for part in _parts(text) if content_words(part.text)]
    contents = [set(content_words(part.text)) for part in parts]
    counts = Counter(word for words in contents for word in words)
    own = [{word for word in words if counts[word] == 1} for words in contents]
    taken: set[str] = set()
    for act in acts:
        words = set(all_words(" ".join((*argument_values(act.args), act.result))))
        if words.isdisjoint(set().union(*own)):
            return ()
        taken |= words
    left: list[str] = []
    for number, part in enumerate(parts):
        if own[number] & taken:
            continue
        if len(part.text.split()) >= MIN_WORDS:
            left.append(part.text)
        elif number and part.goes_on and own[number - 1] & taken and says_which(f"{_HANDED_OVER} {part.text}"):
            left.append(f"{_without(parts[number - 1].text, taken)} {part.text}")
    return tuple(left)


class _MessagePart(NamedTuple):
    """A part of a message. It may go on with the sentence of the part before it."""

    text: str
    goes_on: bool


def _parts(text: str) -> Iterator[_MessagePart]:
    """Yield sentences, their clauses after "and" or "then", and the items of a list of clauses. A quote is one part."""
    masked = _QUOTE.sub(lambda quote: quote[0].replace(" ", _BLANK), text)
    for sentence in _SENTENCES.split(masked):
        clauses = _CLAUSES.split(sentence)
        items = [item for clause in clauses[:-1] for item in _items(clause)] + clauses[-1:]
        for number, item in enumerate(item for item in items if item.strip()):
            yield _MessagePart(item.replace(_BLANK, " ").strip(), number > 0)


def _items(clause: str) -> list[str]:
    """Return the items of a list of clauses before its "and"; a clause with fewer words than one is no list."""
    items = _ITEMS.split(clause)
    return items if all(len(item.split()) >= MIN_WORDS for item in items) else [clause]


def _without(part: str, taken: set[str]) -> str:
    """Return a part without the words that an act took: what it asks of the words that follow, too."""
    return " ".join(word for word in part.split() if not set(content_words(word)) & taken)


def says_which(text: str) -> bool:
    """Return whether a text says which thing is meant: by a number, a path, a quote, or a capital within a sentence."""
    words = [
        (word, number > 0 or part.goes_on) for part in _parts(text) for number, word in enumerate(part.text.split())
    ]
    return any(
        _NUMBER_OR_PATH.search(word) or word[0] in "'\"“" or (is_within and word[0].isupper() and word != "I")
        for word, is_within in words
    )


def argument_values(value: Any) -> list[str]:
    """Return the texts and numbers among the arguments of an op, without its kind and form."""
    if isinstance(value, dict):
        return [one for name, part in value.items() if name not in ("kind", "op") for one in argument_values(part)]
    if isinstance(value, list):
        return [one for part in value for one in argument_values(part)]
    return [str(value)] if isinstance(value, str | int | float) and not isinstance(value, bool) else []


def all_words(text: str) -> list[str]:
    """Return the words of a text, in lower case."""
    return re.findall(r"[^\W_]+", text.casefold())


def content_words(text: str) -> list[str]:
    """Return the words of a text that say what it is about."""
    return [word for word in all_words(text) if word not in _FUNCTION_WORDS]
