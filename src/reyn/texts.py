"""Short texts for readers: the beginning of a long one, one line of several, a number with its noun."""


def one_line(text: str) -> str:
    """Return a text without line breaks, so that no text of an author or a model can begin a line of the prompt."""
    return " ".join(text.split())


def truncated(text: str, most: int) -> str:
    """Return a text of at most `most` characters; a longer one ends with `…`."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 run` and `2 runs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
