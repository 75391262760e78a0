"""Parse YAML and front matter into values with line and column numbers.

The YAML package is loaded by the first text to parse, because it takes longer than many a command.
"""

from __future__ import annotations

import msgspec

from reyn.documents.document import Document, DocumentError
from reyn.errors import Finding
from reyn.errors.codes import BAD_YAML


def parse_front_matter(text: str, file: str) -> Document:
    """Parse a YAML block between two `---` lines, followed by a body.

    The body is every character after the second `---` line, blank lines included.

    Raises:
        DocumentError: the front matter is missing, not closed or not valid YAML.
    """
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        raise DocumentError(
            Finding(file, 1, 1, BAD_YAML, "the file has no front matter", "start the file with a line `---`")
        )
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() == "---":
            document = parse_yaml("\n".join(lines[1:number]), file, first_line=2)
            return msgspec.structs.replace(document, body="\n".join(lines[number + 1 :]), body_line=number + 2)
    raise DocumentError(Finding(file, 1, 1, BAD_YAML, "the front matter is not closed", "end it with a line `---`"))


def parse_yaml(text: str, file: str, first_line: int = 1) -> Document:
    """Parse a YAML document.

    Args:
        text: The YAML text.
        file: The file name for findings.
        first_line: The line number of the first line of `text` in the file.

    Raises:
        DocumentError: the text is not valid YAML, or exceeds a size limit.
    """
    from reyn.documents.yaml_events import build_value

    return build_value(text, file, first_line)
