"""Manifests: which fields of earlier handoffs a phase sees, and how many tokens they may take."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.config.values import HANDOFF_FIELDS, HandoffSettings
from reyn.documents import nearest_hint
from reyn.errors import ManifestInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reyn.config.values import ContextChoice

DEFAULT_NARRATIVE_CAP = 1000
"""The cap on a narrative where a manifest selects no fields and sets no cap."""


class PhaseManifest(msgspec.Struct, frozen=True):
    """The context that a phase receives from earlier phases.

    Attributes:
        phase: The phase that receives it.
        handoff_fields: The fields that the phase sees; empty: all fields.
        narrative_cap: The maximum number of code points of a narrative. 0 means none when `handoff_fields` is set,
            else 1000. Listing `narrative` in `handoff_fields` has no effect.
        max_tokens: The budget of the assembled text; 0 is unlimited.

    Raises:
        ManifestInvalid: A field does not exist.
    """

    phase: int = 0
    handoff_fields: tuple[str, ...] = ()
    narrative_cap: int = 0
    max_tokens: int = 0

    def __post_init__(self) -> None:
        fields = tuple(self.handoff_fields or ())
        for name in fields:
            if name not in HANDOFF_FIELDS:
                hint = nearest_hint(str(name), HANDOFF_FIELDS) or f"The fields are {', '.join(HANDOFF_FIELDS)}."
                raise ManifestInvalid(f"no handoff field `{name}`", hint=hint)
        msgspec.structs.force_setattr(self, "handoff_fields", fields)

    def selects(self, field: str) -> bool:
        """Return whether the phase sees a field. The cap alone decides about narratives."""
        if field == "narrative":
            return self.effective_narrative_cap > 0
        return not self.handoff_fields or field in self.handoff_fields

    @property
    def effective_narrative_cap(self) -> int:
        """The maximum number of code points of a narrative; 0 if narratives are omitted."""
        if self.narrative_cap > 0:
            return self.narrative_cap
        return 0 if self.handoff_fields else DEFAULT_NARRATIVE_CAP


default_manifests: Mapping[int, PhaseManifest] = MappingProxyType(
    {
        1: PhaseManifest(phase=1),
        2: PhaseManifest(
            phase=2,
            handoff_fields=("goal", "epic_id", "verdicts", "decisions_made", "open_risks"),
            narrative_cap=500,
            max_tokens=2500,
        ),
        3: PhaseManifest(
            phase=3,
            handoff_fields=("goal", "epic_id", "verdicts", "artifacts_produced"),
            narrative_cap=1000,
            max_tokens=2500,
        ),
    }
)
"""Manifests for discovery (1), implementation (2) and validation (3)."""


def resolve_manifest(phase: int | str, *overrides: Mapping[int | str, PhaseManifest]) -> PhaseManifest:
    """Return the manifest of a phase: the first override that has one, else the default.

    Without either, the manifest is permissive: all fields, no limit.

    Args:
        phase: The ordinal of the phase, or its name.
        overrides: Manifests by ordinal or name, those of the highest precedence first.
    """
    tables: list[Mapping[Any, PhaseManifest]] = [*overrides, default_manifests]
    for manifests in tables:
        manifest = manifests.get(phase)
        if manifest is not None:
            return manifest
    return PhaseManifest(phase=phase if isinstance(phase, int) else 0)


class PhaseContext(NamedTuple):
    """The handoffs that a phase receives (`None`: none), and whether the model is asked to add one."""

    manifest: PhaseManifest | None = None
    asks_handoff: bool = False


_NO_HANDOFFS = PhaseContext()


def choose_context(ordinal: int, *levels: ContextChoice | None) -> PhaseContext:
    """Combine the `context` of a phase, its skill and the project.

    A word, or the key `manifest` of a mapping, replaces the manifest of the levels above; the other keys of a mapping
    replace what they set. A mapping without keys about handoffs changes nothing. `ask_handoff` is inherited unless a
    level sets it or is `none`.

    Args:
        ordinal: The rank of the phase by first visit, which `default` looks up.
        levels: The values of `context`, the innermost first; `None` where it is absent.
    """
    if levels.count(None) == len(levels):
        return _NO_HANDOFFS
    manifest: PhaseManifest | None = None
    asks = False
    for level in reversed(levels):
        name = level.manifest if isinstance(level, HandoffSettings) else level
        if name == "none":
            manifest, asks = None, False
        elif name is not None:
            manifest = resolve_manifest(ordinal) if name == "default" else PhaseManifest(ordinal)
        if isinstance(level, HandoffSettings) and level.changes_manifest:
            base = manifest or PhaseManifest(ordinal)
            manifest = PhaseManifest(
                ordinal,
                base.handoff_fields if level.handoff_fields is None else level.handoff_fields,
                base.narrative_cap if level.narrative_cap is None else level.narrative_cap,
                base.max_tokens if level.max_tokens is None else level.max_tokens,
            )
            asks = asks if level.ask_handoff is None else level.ask_handoff
    return PhaseContext(manifest, asks)
