"""Preview the next request of a recorded run: continue it in memory up to its next model call.

The preview executes the code of a real run over its recording, so it shows the exact messages. It performs no effect
and writes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.context import normalized, rendered_message
from reyn.errors import RunNotResumable
from reyn.journal import Blob, canonical, kinds
from reyn.kernel.core.driver import Driver
from reyn.kernel.core.effects import CallModel, ReadOverviews
from reyn.kernel.core.tape import RecordingEnded
from reyn.kernel.world.inbox import answer_error
from reyn.kernel.world.loading import load_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.journal import Body, Journal
    from reyn.kernel.core.driver import SkillCompiler
    from reyn.kernel.core.effects import Effect, StartSubRuns
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.core.tape import Tape

    OverviewReader = Callable[[ReadOverviews, Tape], tuple[Body, tuple[Blob, ...]]]


async def next_prompt(
    journal: Journal,
    run_id: str,
    compile_skill: SkillCompiler,
    answer: Any = None,
    *,
    read_overviews: OverviewReader | None = None,
) -> list[tuple[str, str]]:
    """Return role and text of the messages that a run would send next.

    Args:
        journal: The journal.
        run_id: The run.
        compile_skill: Compiles the run's copy of its skill.
        answer: The answer to the open question of the run, for example the user's next message.
        read_overviews: Lists the objects that the ops of a conversation can act on.

    Raises:
        RunNotResumable: The run calls no model before it ends, asks again, or has a side effect.
    """
    loaded = load_run(journal, run_id)
    world = _Preview(run_id, loaded.state, answer, read_overviews)
    await Driver(loaded.tape, compile_skill, world).execute()
    effect, tape = world.reached, loaded.tape
    if not isinstance(effect, CallModel):
        reason = "a step has side effects" if effect is not None else f"it is {tape.state.status}"
        raise RunNotResumable(f"run `{run_id}` does not call its model next: {reason}")
    system, *rest = effect.messages
    transcript = effect.transcript.tail(effect.transcript.length) if effect.transcript is not None else ()
    return [
        (str(message.role), rendered_message(message, tape.content, results=effect.results).text)
        for message in (normalized(system), *transcript, *map(normalized, rest))
    ]


class _Preview:
    """A world in which nothing happens: it answers the open question, and stops at the first effect."""

    def __init__(self, run_id: str, state: RunState, answer: Any, read_overviews: OverviewReader | None) -> None:
        self._read_overviews = read_overviews
        self._run_id = run_id
        self._answer = answer
        self._resumes = state.status not in ("running", "waiting")
        self._now = state.last_input
        self.reached: Effect[Any] | None = None

    async def perform(self, effect: Effect[Any], tape: Tape) -> tuple[Body, tuple[Blob, ...]] | None:
        if isinstance(effect, ReadOverviews) and self._read_overviews is not None:
            return self._read_overviews(effect, tape)
        self.reached = effect
        raise RecordingEnded

    def now(self) -> int:
        return self._now

    def external_events(self, state: RunState) -> list[tuple[Body, tuple[Blob, ...]]]:
        if self._resumes:
            self._resumes = False
            return [(kinds.RunResumed("preview", retry=True), ())]
        if state.wait is None or self._answer is None:
            return []
        if reason := answer_error(state.wait, state.wait.id, self._answer):
            raise RunNotResumable(f"run `{self._run_id}` waits for another answer: {reason}")
        content, self._answer = Blob.of(canonical(self._answer)), None
        return [
            (
                kinds.WaitAnswered(
                    state.wait.id, content.hash, state.messages_taken + 1, is_message=state.wait.is_message
                ),
                (content,),
            )
        ]

    async def wait_for_answer(self, wait: kinds.Question, state: RunState) -> bool:
        return False

    async def start(self, effect: StartSubRuns, tape: Tape) -> None:
        """Start nothing: executing them is the first effect."""

    async def flush(self, tape: Tape) -> None:
        """Write nothing: a preview leaves no trace."""

    async def settle(self, *, is_finishing: bool = False) -> None:
        """End nothing: nothing was started."""
