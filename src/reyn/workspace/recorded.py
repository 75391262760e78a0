"""The contents that a run has recorded, as files that ops can read: op results, artifacts, truncated texts.

A view of the events, computed when it is used: nothing is stored a second time, and nothing can be written. Names come
from the events alone, so that the same history gives the same files.
"""

from __future__ import annotations

import threading
from collections import ChainMap
from collections.abc import Callable, Iterable, MutableMapping, Sequence

from reyn.journal import Body, Event, Journal, decode, kinds
from reyn.workspace.files import FolderEntry
from reyn.workspace.paths import RECORDED, Parts

INPUT, RESULT = "input", "result"
"""The names of the input of a run, and of what its postprocessor returned."""
_COMPLETED = "_completed"
_NAMED = frozenset(
    body.kind
    for body in (
        kinds.RunStarted,
        kinds.RunForked,
        kinds.PhaseStarted,
        kinds.ArtifactStored,
        kinds.PermissionDenied,
        kinds.ApprovalDecided,
        kinds.ContentTruncated,
        kinds.ChildEnded,
    )
)


def artifact_name(step: int) -> str:
    """Return the name of the artifact of a visit: `step` is its number in the run."""
    return f"{step}.artifact"


def run_folder(call: str) -> str:
    """Return the name of the folder with the files of the sub-run that a call started."""
    return f"{call}.run"


def run_path(call: str, name: str = "") -> str:
    """Return the path of a file of the sub-run that a call started; by default, that of its folder."""
    return f"{RECORDED}{run_folder(call)}{f'/{name}' if name else ''}"


class _Index:
    """The names of the contents of one run, up to an event."""

    def __init__(self) -> None:
        self.seq = 0
        self.files: MutableMapping[str, str] = {}
        """The hashes of contents."""
        self.runs: MutableMapping[str, kinds.ChildEnded] = {}
        """The sub-runs that ended."""
        self._step = 0

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            kind = event.kind
            is_frame = kind == kinds.FrameBuilt.kind and b'"truncated"' in event.raw
            if is_frame or kind in _NAMED or kind.endswith(_COMPLETED):
                self._add(decode(event))
            self.seq = event.seq

    def with_pending(self, events: Sequence[Event]) -> _Index:
        """Return the index with events that may still be dropped."""
        if not events:
            return self
        extended = _Index()
        extended.files, extended.runs = ChainMap({}, self.files), ChainMap({}, self.runs)
        extended.seq, extended._step = self.seq, self._step
        extended.add(events)
        return extended

    def _add(self, body: Body) -> None:
        match body:
            case kinds.OpCompleted(call=name, result=content) | kinds.PermissionDenied(call=name, result=content):
                self.files[name] = content
            case kinds.ApprovalDecided(call=name, result=str(content)):
                self.files[name] = content
            case kinds.ContentTruncated(name=name, content=content):
                self.files[name] = content
            case kinds.FrameBuilt(budget=kinds.PromptBudget(truncated=truncated)):
                self.files.update({one.name: one.content for one in truncated})
            case kinds.PhaseStarted():
                self._step += 1
            case kinds.ArtifactStored(artifact=artifact):
                self.files[artifact_name(self._step)] = artifact.hash
            case kinds.PostprocessorCompleted(artifact=artifact):
                self.files[RESULT] = artifact.hash
            case kinds.RunStarted(input=artifact):
                self.files[INPUT] = artifact.hash
            case kinds.RunForked(input=kinds.ArtifactRef(hash=content)):
                self.files[f"{self._step + 1}.{INPUT}"] = content
            case kinds.ChildEnded(type="skill", call=call, seq=seq) if seq:
                self.runs[run_folder(call)] = body


class RecordedFiles:
    """The recorded contents of a run as files, and those of each sub-run that ended as a folder.

    The events of the run are read once, when a file is used for the first time, and from then on the new ones only.
    """

    def __init__(
        self, journal: Journal | None = None, run_id: str = "", pending: Callable[[], Sequence[Event]] = tuple
    ) -> None:
        """Create the view of a run.

        Args:
            journal: The journal; `None` for a run that has recorded nothing.
            run_id: The run.
            pending: Returns the events that are not durable yet.
        """
        self._journal = journal
        self._run_id = run_id
        self._pending = pending
        self.own = _Index()
        self._lock = threading.Lock()
        """Searches run in threads, several at the same time."""
        self._ended: dict[tuple[str, int], _Index] = {}

    def find(self, path: Parts) -> str | None:
        """Return the hash of the content of a file; `None` if there is no such file."""
        folder = self._folder(path[:-1]) if path else None
        return folder.files.get(path[-1]) if folder is not None else None

    def is_folder(self, path: Parts) -> bool:
        return self._folder(path) is not None

    def entries(self, path: Parts) -> list[FolderEntry]:
        """Return what a folder contains, sorted by name; nothing if there is no such folder."""
        folder = self._folder(path)
        if folder is None:
            return []
        return sorted(
            [
                *(FolderEntry(name, is_folder=False) for name in list(folder.files)),
                *(FolderEntry(name, is_folder=True) for name in list(folder.runs)),
            ]
        )

    def _folder(self, path: Parts) -> _Index | None:
        index: _Index | None = self._current()
        for name in path:
            ended = index.runs.get(name) if index is not None else None
            index = self._of(ended) if ended is not None else None
        return index

    def _current(self) -> _Index:
        """Return the index of the run itself. What was pending before the read is durable now, or pending still."""
        if self._journal is None:
            return self.own
        with self._lock:
            pending, own = tuple(self._pending()), self.own
            own.add(self._journal.read(self._run_id, own.seq))
            return own.with_pending([event for event in pending if event.seq > own.seq])

    def _of(self, ended: kinds.ChildEnded) -> _Index | None:
        """Return the index of a sub-run as it was when its parent took its result.

        The recorded hash shows that the run with this id is that sub-run: an import can name any run.
        """
        key = ended.run, ended.seq
        if key not in self._ended and self._journal is not None:
            index, head = _Index(), ""
            for event in self._journal.read(ended.run):
                if event.seq > ended.seq:
                    break
                index.add((event,))
                head = event.hash
            if index.seq != ended.seq or head != ended.head:
                return None
            self._ended[key] = index
        return self._ended.get(key)
