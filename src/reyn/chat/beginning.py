"""How a conversation begins that is not recorded yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reyn.context.messages import NormalizedMessage
from reyn.context.transcript import NO_MESSAGES, NormalizedMessageList
from reyn.kernel.world.inbox import stored_images
from reyn.runtime.same_call import RunCall
from reyn.skills import USER_MESSAGE

if TYPE_CHECKING:
    from reyn.kernel.world.run_scope import RunScope
    from reyn.models import Image
    from reyn.skills import Skill


class Beginning(NamedTuple):
    """What the first message of a conversation starts.

    Attributes:
        skill: The skill of the run.
        history: What was said before; see `OSRuntime.run`.
        within: The op whose code holds the conversation, if it is a sub-run; see `OSRuntime.run`.
        is_single_turn: Whether the run ends with its first reply. Saying the same again returns the same reply.
        instructions: The instructions that come with each message, if a program can change them.
    """

    skill: Skill
    history: NormalizedMessageList = NO_MESSAGES
    within: RunScope | None = None
    is_single_turn: bool = False
    instructions: str | None = None

    def call(self, text: str, images: tuple[Image, ...]) -> RunCall:
        """Return how the run starts. The skill has the system message of the history as its instructions."""
        message = {"type": USER_MESSAGE.name, "data": {"text": text}}
        return RunCall(self.skill, message, self.history.with_system(None), stored_images(images))

    def said(self, text: str, images: tuple[Image, ...]) -> Beginning:
        """Return it with the first message, which is part of the history whatever becomes of the run."""
        return self._replace(history=self.history.append(NormalizedMessage("user", text, images)))
