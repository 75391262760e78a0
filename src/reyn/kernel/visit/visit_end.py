"""The end of a visit, with and without a model: store its artifact, or record its failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.errors import error_name_of
from reyn.journal import Blob, canonical, kinds

if TYPE_CHECKING:
    from reyn.kernel.core.errors_of_nodes import VisitFault
    from reyn.kernel.core.run_orchestrator import Visit
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.op_log import Completed, OpLog


def store_artifact(
    artifact: dict[str, Any], tape: Tape, encoded: bytes | None = None, change: kinds.StateChange | None = None
) -> kinds.ArtifactRef:
    """Emit an artifact, with what it changes in the state. `encoded` is its canonical JSON, if it is known."""
    content = Blob.of(canonical(artifact) if encoded is None else encoded)
    reference = kinds.ArtifactRef(artifact["type"], content.hash)
    tape.emit(kinds.ArtifactStored(reference, len(content.content), change), content)
    return reference


async def fail_visit(entry: Visit, log: OpLog, fault: VisitFault, tape: Tape, calls: int = 0) -> None:
    """Record the failure of a visit, after so many model calls."""
    done, steps, blobs = await discard_visit(entry, log, tape)
    code, name = fault.code, fault.error_name
    name = "" if name == error_name_of(code) else name
    tape.emit(kinds.PhaseFailed(entry.phase, entry.visit, calls, fault.reason, code, done, steps, name), *blobs)


async def discard_visit(entry: Visit, log: OpLog, tape: Tape) -> Completed:
    """Restore the files that a visit changed; return what else it did, which a repetition of it must not repeat."""
    await log.restore_files(f"{entry.step}.restore", tape)
    return log.completed(is_restored=True)
