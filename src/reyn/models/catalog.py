"""A model's name becomes a model. Adapters are imported here, one by one, when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.errors import ModelUnknown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from reyn.journal import Journal
    from reyn.models.protocol import Model


def open_model(name: str, *, root: Path, journal: Journal, names: Mapping[str, str] | None = None) -> Model:
    """`scripted:FILE` (relative to the project), `recorded:RUN`, or a name from the configuration's `models`."""
    resolved = (names or {}).get(name, name)
    adapter, _, rest = resolved.partition(":")
    if adapter == "scripted" and rest:
        from reyn.models.scripted import ScriptedModel

        return ScriptedModel.from_file(root / rest, resolved)
    if adapter == "recorded" and rest:
        from reyn.models.recorded import RecordedModel

        return RecordedModel(journal, rest)
    raise ModelUnknown(f"no adapter for the model `{resolved}`" if resolved else "no model is set")
