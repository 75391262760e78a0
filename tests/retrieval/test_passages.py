"""Documents are split into passages that an answer can quote: nothing is lost, and positions are those of the file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.errors import DocumentUnreadable
from reyn.retrieval import read_passages
from reyn.retrieval.passages import MAX_PASSAGE
from tests.support import grows_too_fast

TEXT = """\
Before any heading.

# Shop

## Refunds

Refunds are paid within 14 days of the purchase.

- by card
- in cash

```python
# no heading

print(1)
```

## Shipping ##
Parcels take two days.
"""


def test_a_passage_has_its_headings_and_lines():
    found = read_passages(TEXT, "shop.md")
    assert [(one.heading, one.line, one.end_line) for one in found] == [
        ("", 1, 1),
        ("Shop > Refunds", 7, 16),
        ("Shop > Shipping", 19, 19),
    ]
    lines = TEXT.split("\n")
    assert all(one.text == "\n".join(lines[one.line - 1 : one.end_line]) for one in found)


def test_text_has_no_headings_and_html_has_no_lines():
    [one] = read_passages("# not a heading\nof a text\n", "notes.txt")
    assert (one.heading, one.text) == ("", "# not a heading\nof a text")
    [one] = read_passages("# Title\n\nA page.\n", "page.html")
    assert (one.heading, one.text, one.line, one.end_line) == ("Title", "A page.", 0, 0)


LINES = st.lists(
    st.one_of(
        st.text(max_size=40),
        st.sampled_from(
            ["", "# A", "## B", "```", "~~~", "    ", "\t", "word " * 300, "x" * 3_000, "。" * 2_000, "\r"]
        ),
    ),
    max_size=40,
)


@given(LINES, st.sampled_from(["a.md", "a.txt", "a.html"]))
def test_nothing_is_lost_and_no_passage_is_too_long(lines: list[str], path: str):
    text = "\n".join(lines)
    found = read_passages(text, path)
    kept = sum(len("".join(one.text.split())) for one in found)
    headings = sum(len("".join(line.split())) for line in lines if path != "a.txt" and line.lstrip().startswith("#"))
    assert len("".join(text.split())) - headings <= kept <= len("".join(text.split()))
    for one in found:
        assert one.text.strip()
        assert len(one.text) <= 2 * MAX_PASSAGE
        assert path == "a.html" or 1 <= one.line <= one.end_line <= len(text.split("\n"))


def test_a_long_document_takes_time_in_proportion():
    assert not grows_too_fast(lambda size: read_passages("word " * size + "\n\n# H\n\ntext\n" * size, "a.md"), 1_000)
    with pytest.raises(DocumentUnreadable, match="more than 20000 passages"):
        read_passages("# H\n\ntext\n\n" * 20_001, "a.md")
