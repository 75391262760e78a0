"""File ops as the world sees them: what a visit asks for becomes a plan, an act, and the events that record both."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.journal import Blob, canonical, digest, kinds
from reyn.ops import OPS, Call, Env, Plan, denied_result, error_result
from reyn.permissions import Denied, Gate
from reyn.secrets.file import secrets_path
from reyn.workspace import FileFault, PlaceInvalid, Roots, locate, read, revert

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from reyn.config import Sizes
    from reyn.journal import Body
    from reyn.kernel.effects import Admit, Perform, Restore
    from reyn.kernel.tape import Tape

    Recorded = tuple[Body, tuple[Blob, ...]]

_SLOW = ("glob", "grep", "regenerate_index")
"""Forms that may take a while: they are kept out of the event loop."""


def roots_of(root: Path, state: Path, workspace: str) -> Roots:
    """The places of a run: the project, the state folder, its own files; and where the operator's secrets are, which is
    nobody's to read though the project may be the home folder."""
    return Roots(root, state, state / "workspace" / workspace, (secrets_path(os.environ).parent,))


class OpPerformer:
    def __init__(self, root: Path, state: Path, sizes_of: Callable[[kinds.RunStarted], Sizes]) -> None:
        self._root = root
        self._state = state
        self._sizes_of = sizes_of
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
        assert tape.state.started is not None
        largest = self._sizes_of(tape.state.started).file_bytes
        return Env(gate.roots, gate, tape.content, tape.state.kept, largest)


def _call(effect: Admit | Perform, tape: Tape) -> Call:
    """A call's name is its own in one run; runs that write side by side need one that is nobody else's."""
    return Call(f"{tape.run_id}/{effect.key}", effect.args)


def _completed(call: str, result: dict[str, Any], *, changed: bool = False) -> Recorded:
    content = Blob.of(canonical(result))
    return kinds.FileCompleted(call, result["status"], content.hash, len(content.content), changed), (content,)


def foresee(changes: tuple[kinds.Change, ...], env: Env) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which files undoing changes would put back, and which it would leave alone."""
    restored: dict[str, str | None] = {}
    left: dict[str, None] = {}
    for steps in _chains(changes):
        path = steps[0].path
        if _is_ours(steps, restored[path] if path in restored else _hash_now(path, env)):
            restored[path] = steps[-1].before
        else:
            left[path] = None
    return tuple(path for path in restored if path not in left), tuple(left)


def put_back(changes: tuple[kinds.Change, ...], token: str, env: Env) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Undo changes, newest first: the files that are as before now, and those that were left alone."""
    restored: list[str] = []
    left: list[str] = []
    for number, steps in enumerate(_chains(changes)):
        change = _as_one(steps, env)
        try:
            outcome = revert(change, env.roots, env.content, f"{token}.{number}")
        except FileFault:
            outcome = "conflict"
        (left if outcome == "conflict" else restored).append(change.path)
    return tuple(restored), tuple(left)


def _chains(changes: tuple[kinds.Change, ...]) -> list[list[kinds.Change]]:
    """Changes that follow upon each other in one file, newest first; each chain in the place of its oldest.

    They are put back in one step: a file that was put back in several would, after a crash, look to the first of them
    like somebody else's.
    """
    chains: dict[int, list[kinds.Change]] = {}
    newest: dict[str, int] = {}
    for number, change in enumerate(changes):
        place = newest.get(change.path)
        follows = place is not None and chains[place][-1].before == change.after
        chains[number] = chains.pop(place) if place is not None and follows else []
        chains[number].append(change)
        newest[change.path] = number
    return list(chains.values())


def _as_one(steps: list[kinds.Change], env: Env) -> kinds.Change:
    """A chain as one change. Its newest may be an intent that never took place: then it ends where the file is."""
    oldest, now = steps[-1], _hash_now(steps[0].path, env)
    made = tuple(dict.fromkeys(path for step in reversed(steps) for path in step.made))
    after = now if _is_ours(steps, now) and now != oldest.before else steps[0].after
    return kinds.Change(oldest.path, oldest.before, after, oldest.mode, made)


def _is_ours(steps: list[kinds.Change], now: str | None) -> bool:
    return now == steps[0].after or any(now == step.before for step in steps)


def _hash_now(path: str, env: Env) -> str | None:
    """Which content a file has; the empty text for one that cannot be had."""
    try:
        image = read(locate(path, env.roots), env.roots, env.file_bytes)
    except (FileFault, PlaceInvalid):
        return ""
    return digest(image.content) if image else None
