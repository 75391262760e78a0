"""The order in which `retry`, `on_error` and `on_phase_failure` follow an error, against a model of ten lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reyn.config import Limits, RunSettings
from reyn.journal import kinds
from reyn.kernel.core.errors_of_nodes import HandleError
from reyn.kernel.core.run_orchestrator import next_move
from reyn.kernel.core.run_state import EMPTY, apply
from reyn.kernel.core.snapshot import RunState
from reyn.skills.error_settings import Retry
from reyn.skills.values import ERROR_TYPE, ArtifactType, NodeSettings, Phase, Skill
from tests.properties import examples

NAMES = ("timeout", "rejected", "limit", "failed", "payment_declined")
KEYS = (*NAMES, "*")
NOTE = ArtifactType("note", {"type": "object"})
REF = kinds.ArtifactRef("note", "0" * 64)


@dataclass
class Model:
    """What a node does about errors, in the words of the reference."""

    retry: tuple[int, tuple[str, ...]] | None
    on_error: dict[str, str] = field(default_factory=dict)
    repeated: int = 0

    def after(self, error: str) -> str:
        most, on = self.retry or (0, ())
        if self.repeated < most and (error in on or ("*" in on and error != "limit")):
            self.repeated += 1
            return "again"
        self.repeated = 0
        return self.on_error.get(error) or (self.on_error.get("*", "") if error != "limit" else "") or "failed"


retries = st.none() | st.tuples(st.integers(1, 3), st.lists(st.sampled_from(KEYS), min_size=1).map(tuple))
handlers = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(("ask", "refund")))


def skill_with(retry: Any, on_error: dict[str, str]) -> Skill:
    phases = {name: Phase(name, (ERROR_TYPE,), name) for name in ("ask", "refund")}
    phases["pay"] = Phase("pay", (NOTE,), "Pay.")
    settings = NodeSettings(retry=Retry(*retry) if retry is not None else None, on_error=on_error)
    graph = {"pay": ("end",), "ask": ("pay",), "refund": ("end",)}
    return Skill("shop", "pay", phases, graph, NOTE, nodes={"pay": settings})


def state_of(*bodies: Any) -> RunState:
    state = EMPTY
    for body in bodies:
        state = apply(state, body, 1)
    return state


SETTINGS = RunSettings(limits=Limits(max_phase_visits=None, no_progress=None))
START = kinds.RunStarted("k", "shop", "0" * 64, REF, "scripted", "0" * 64, 1, 1)


@examples(300)
@given(retry=retries, on_error=handlers, errors=st.lists(st.sampled_from(NAMES), min_size=1, max_size=8))
def test_errors_are_followed_by_what_the_model_says(retry: Any, on_error: dict[str, str], errors: list[str]):
    skill, model, state = skill_with(retry, on_error), Model(retry, on_error), state_of(START)
    for visit, error in enumerate(errors, start=1):
        state = apply(state, kinds.PhaseStarted("pay", visit, REF), 1)
        state = apply(state, kinds.PhaseFailed("pay", visit, 0, "why", "RYN203", error_name=error), 1)
        move, expected = next_move(state, skill, SETTINGS), model.after(error)
        if expected == "again":
            assert isinstance(move, kinds.VisitRetried)
            assert (move.phase, move.error, move.attempt) == ("pay", error, model.repeated)
            state = apply(state, move, 1)
        elif expected == "failed":
            assert isinstance(move, kinds.RunFailed)
            return
        else:
            assert isinstance(move, HandleError)
            assert (move.to, move.error, move.input) == (expected, error, REF)
            handled = kinds.ErrorHandled("pay", error, move.to, REF)
            state = apply(state, handled, 1)
            assert state.phase == expected
            state = apply(state, kinds.PhaseStarted(expected, 1, REF), 1)
            state = apply(state, kinds.ArtifactStored(REF, 1), 1)
            state = apply(state, kinds.PhaseCompleted(expected, 1, "transition", "pay"), 1)
