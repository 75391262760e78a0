"""The kill harness detects kernels that are broken on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn.journal import digest, kinds
from reyn.journal.canonical import Blob
from reyn.kernel.core.driver import Driver
from reyn.kernel.core.effects import PerformOp
from reyn.kernel.world.live import LiveWorld
from reyn.kernel.world.op_outcomes import completed_outcome
from reyn.kernel.world.op_performer import InstalledOp, OpPerformer, _call
from reyn.ops import Env
from reyn.ops.execution import apply_changes, perform_op, plan_op
from reyn.testing import ScriptedModel
from reyn.workspace import changes
from tests.kernel.kill.scenario import Scenario
from tests.kernel.kill.scenarios import pair, writing


def caught(scenario: Scenario, *, at: str = "", text: str) -> bool:
    """Whether a kill at some point with that name causes a violation that contains the text."""
    points = scenario.rehearse()
    numbers = (number for number, name in enumerate(points, start=1) if name.startswith(at))
    return any(text in line for number in numbers for line in scenario.kill_at(number))


def test_a_kernel_that_commits_the_outcome_before_the_effect_is_caught(arena: Path, monkeypatch: pytest.MonkeyPatch):
    scenario = pair(arena / "project")

    async def outcome_first(self: Driver, effect):
        await self.world.flush(self.tape)
        request = self.world._recorder.prepare(effect, self.tape).first.request
        text = Blob.of(ScriptedModel(scenario.answers)._answers[self.tape.state.models.answers][0].encode())
        outcome = kinds.LlmResponded(effect.key, text.hash)
        self.tape.record(outcome, self.world.now(), text)
        await self.world.flush(self.tape)
        await self.world._roster.open("").complete(request)
        return outcome

    monkeypatch.setattr(Driver, "_perform", outcome_first)
    assert caught(scenario, text="that the model did not give")


def test_a_kernel_that_does_not_flush_before_an_effect_is_caught(arena: Path, monkeypatch: pytest.MonkeyPatch):
    flush = LiveWorld.flush

    async def flush_only_at_the_end(self: LiveWorld, tape) -> None:
        if tape.state.status != "running":
            await flush(self, tape)

    monkeypatch.setattr(LiveWorld, "flush", flush_only_at_the_end)
    assert caught(pair(arena / "project"), text="its answer was lost")


def test_a_kernel_that_changes_a_file_before_the_intent_is_durable_is_caught(
    arena: Path, monkeypatch: pytest.MonkeyPatch
):
    perform = Driver._perform

    async def intent_later(self: Driver, effect):
        if not isinstance(effect, PerformOp):
            return await perform(self, effect)
        outcome, blobs = await self.world.perform(effect, self.tape)
        self.tape.record(outcome, self.world.now(), *blobs)
        return outcome

    monkeypatch.setattr(Driver, "_perform", intent_later)
    scenario = writing(arena / "project")
    assert caught(scenario, at="os.rename after", text="before its intent was durable")
    assert caught(scenario, at="os.rename after", text="file `output/log.txt` is")


def test_a_kernel_that_replans_an_op_after_a_crash_is_caught(arena: Path, monkeypatch: pytest.MonkeyPatch):
    """It ignores the before-images of the recorded intent, so an edit that took place is repeated."""

    async def replanned(self: OpPerformer, effect: PerformOp, run_op: InstalledOp, tape, *_):
        call, env, op = _call(effect, tape), self.environments.env(tape), run_op.op
        plan = plan_op(op, call, env)
        held = {blob.hash: blob.content for blob in plan.blobs}
        env = Env(env.roots, env.gate, lambda name: held.get(name) or tape.content(name), env.recorded, env.file_bytes)
        applied = apply_changes(call, plan.changes, env)
        result = applied.problem or plan.result or (await perform_op(op, call, plan, env)).result
        return completed_outcome(effect, result, applied=len(effect.started.changes))

    monkeypatch.setattr(OpPerformer, "perform", replanned)
    scenario = writing(arena / "project")
    assert caught(scenario, at="os.rename after", text="took place, but was not requested")
    assert caught(scenario, at="os.rename after", text="file `output/log.txt` is")


def test_a_kernel_that_changes_a_file_without_checking_it_first_is_caught(arena: Path, monkeypatch: pytest.MonkeyPatch):
    """The file has the same content in the end; only the ledger shows that it was written twice."""

    def apply_blindly(self, folder, content, token):
        temporary = f"{changes.TEMPORARY}{digest(token.encode())[:16]}"
        changes._unlink(folder, temporary)
        if self.change.after is None:
            changes.os.unlink(self.name, dir_fd=folder)
        else:
            changes._write(folder, temporary, content(self.change.after), self.change.mode)
            changes.os.rename(temporary, self.name, src_dir_fd=folder, dst_dir_fd=folder)
        return "done"

    monkeypatch.setattr(changes._Attempt, "_apply", apply_blindly)
    assert caught(writing(arena / "project"), at="os.rename after", text="took place 2 times")
