"""File ops as the world sees them: what a visit asks for becomes a plan, an act, and the events that record both."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.journal import Blob, canonical, digest, kinds
from reyn.ops import OPS, Call, Env, Plan, denied_result, error_result
from reyn.permissions import Denied, Gate
from reyn.workspace import FileFault, PlaceInvalid, Roots, locate, read, revert

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.journal import Body
    from reyn.kernel.effects import Admit, Perform, Restore
    from reyn.kernel.tape import Tape

    Recorded = tuple[Body, tuple[Blob, ...]]

_SLOW = ("glob", "grep", "regenerate_index")
"""Forms that may take a while: they are kept out of the event loop."""


def roots_of(root: Path, state: Path, workspace: str) -> Roots:
    """The places of a run: the project, the state folder, its own files."""
    return Roots(root, state, state / "workspace" / workspace)


class OpPerformer:
    def __init__(self, root: Path, state: Path, file_bytes: int) -> None:
        self._root = root
        self._state = state
        self._file_bytes = file_bytes
        self._gates: dict[str, Gate] = {}

    def admit(self, effect: Admit, tape: Tape) -> Recorded:
        """Ask the gate; of a writing op, keep what is there before and what will be after."""
        call = _call(effect, tape)
        plan = OPS[call.kind].plan(call, self._env(tape))
        args = Blob.of(canonical(effect.args))
        op = str(effect.args.get("op", ""))
        if isinstance(plan, Denied):
            result = Blob.of(canonical(denied_result(call, plan)))
            return kinds.PermissionDenied(effect.key, op, plan.rule, plan.reason, result.hash), (result, args)
        if plan.result is None:
            return kinds.FileStarted(effect.key, op, args.hash, plan.rule), (args,)
        result = Blob.of(canonical(plan.result))
        started = kinds.FileStarted(effect.key, op, args.hash, plan.rule, plan.changes, result.hash)
        return started, (args, result, *plan.blobs)

    async def perform(self, effect: Perform, tape: Tape) -> Recorded:
        """Do what was admitted. After a crash this is done again: a change that took place is left as it is."""
        call, started = _call(effect, tape), effect.started
        if effect.told in ("done", "failed"):
            return self._told(effect, call, tape)
        kept = Blob(started.result, tape.content(started.result)) if started.result else None
        known = msgspec.json.decode(kept.content) if kept else None
        plan = Plan(started.rule, started.changes, known)
        env = self._env(tape)
        if call.op in _SLOW:
            result = await asyncio.to_thread(OPS[call.kind].perform, call, plan, env)
        else:
            result = OPS[call.kind].perform(call, plan, env)
        if kept is not None and result is known:
            is_ok = result["status"] == "ok"
            done = kinds.FileCompleted(
                effect.key, result["status"], kept.hash, len(kept.content), is_ok and bool(started.changes)
            )
            return done, ()
        return _completed(effect.key, result, changed=bool(started.changes) and result["status"] == "ok")

    def _told(self, effect: Perform, call: Call, tape: Tape) -> Recorded:
        """A person says what became of an intent that nobody here knows the outcome of."""
        if effect.told == "failed":
            return _completed(effect.key, error_result(call, "it did not take place, says a person"))
        known = effect.started.result
        result: dict[str, Any] = {"kind": call.kind, "op": call.op, "status": "ok"}
        if known is not None:
            result = msgspec.json.decode(tape.content(known))
        return _completed(
            effect.key, result | {"note": "it took place, says a person"}, changed=bool(effect.started.changes)
        )

    def restore(self, effect: Restore, tape: Tape) -> Recorded:
        restored, left = put_back(effect.changes, f"{tape.run_id}/{effect.key}", self._env(tape))
        return kinds.WorkspaceRestored(effect.key, restored, left), ()

    def _env(self, tape: Tape) -> Env:
        workspace = tape.state.workspace
        gate = self._gates.get(workspace)
        if gate is None:
            gate = self._gates[workspace] = Gate(roots_of(self._root, self._state, workspace))
        return Env(gate.roots, gate, tape.content, tape.state.kept, self._file_bytes)


def _call(effect: Admit | Perform, tape: Tape) -> Call:
    """A call's name is its own in one run; runs that write side by side need one that is nobody else's."""
    return Call(f"{tape.run_id}/{effect.key}", effect.args)


def _completed(call: str, result: dict[str, Any], *, changed: bool = False) -> Recorded:
    content = Blob.of(canonical(result))
    return kinds.FileCompleted(call, result["status"], content.hash, len(content.content), changed), (content,)


def foresee(changes: tuple[kinds.Change, ...], env: Env) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which files undoing changes would put back, and which it would leave alone."""
    restored: dict[str, None] = {}
    left: dict[str, None] = {}
    expected: dict[str, str | None] = {}
    for change in changes:
        now = expected[change.path] if change.path in expected else _hash_now(change.path, env)
        if now in (change.after, change.before):
            expected[change.path] = change.before
            restored[change.path] = None
        else:
            left[change.path] = None
    return tuple(path for path in restored if path not in left), tuple(left)


def _hash_now(path: str, env: Env) -> str | None:
    """Which content a file has; the empty text for one that cannot be had."""
    try:
        image = read(locate(path, env.roots), env.roots, env.file_bytes)
    except (FileFault, PlaceInvalid):
        return ""
    return digest(image.content) if image else None


def put_back(changes: tuple[kinds.Change, ...], token: str, env: Env) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Undo changes, newest first: the files that are as before now, and those that were left alone."""
    restored: list[str] = []
    left: list[str] = []
    for number, change in enumerate(_joined(changes)):
        try:
            outcome = revert(change, env.roots, env.content, f"{token}.{number}")
        except FileFault:
            outcome = "conflict"
        (left if outcome == "conflict" else restored).append(change.path)
    return tuple(restored), tuple(left)


def _joined(changes: tuple[kinds.Change, ...]) -> list[kinds.Change]:
    """Changes that follow upon each other in one file as one, in the place of the oldest: a file that is put back in
    several steps would, after a crash, look like somebody else's to the first of them."""
    joined: list[kinds.Change | None] = []
    newest: dict[str, int] = {}
    for older in changes:
        place = newest.get(older.path)
        newer = None if place is None else joined[place]
        if place is not None and newer is not None and newer.before == older.after:
            made = tuple(dict.fromkeys((*older.made, *newer.made)))
            older = kinds.Change(older.path, older.before, newer.after, older.mode, made)
            joined[place] = None
        newest[older.path] = len(joined)
        joined.append(older)
    return [change for change in joined if change is not None]
