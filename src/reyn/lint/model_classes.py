"""The rule on model classes: `model_class` names a model of the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.documents import nearest
from reyn.skills import codes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from reyn.documents import Document
    from reyn.errors import Finding
    from reyn.skills import LoadResult


def unknown_classes(loaded: LoadResult, classes: Collection[str]) -> Iterator[Finding]:
    """Report model classes of a skill and its phases that the configuration does not define."""
    names = [f"phases/{name}.md" for name in (loaded.partial.phases if loaded.partial else ())]
    for file in ("skill.md", *names):
        document = loaded.folder.read(file)
        if document is not None:
            yield from unknown_class(document, classes)


def unknown_class(document: Document, classes: Collection[str]) -> Iterator[Finding]:
    """Report the model class of a document if the configuration does not define it: the default model answers."""
    value = document.value.get("model_class") if isinstance(document.value, dict) else None
    if isinstance(value, str) and value not in classes:
        fix = nearest(value, classes) or f"add `{value}` to `models` in reyn.yaml, such as `{value}: openai:NAME`"
        message = f"model class `{value}` is not configured; the default model answers instead"
        yield document.finding(codes.UNKNOWN_MODEL_CLASS, message, "model_class", fix=fix, severity="warning")
