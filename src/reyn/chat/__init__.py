"""Conversations: a conversation is a run of an agent's skill, and everything that holds for runs holds for it.

    async with rt.chat("default") as chat:
        reply = await chat.say("hello")

There is no second store, loop or recovery: messages come through the run's inbox, replies are its artifacts, skills
that it runs are sub-runs. The services are folds and adapters over the kernel.
"""

from reyn.chat.conversation import Conversation
from reyn.chat.items import (
    ChatItem,
    MessageReceived,
    OpFinished,
    OpRequested,
    QuestionAsked,
    Redirected,
    Reply,
    ReplyDelta,
    Restarted,
    SkillEnded,
    SkillProgressed,
    SkillStarted,
    Stopped,
)
from reyn.chat.meaning import Meaning
from reyn.chat.opening import open_conversation
from reyn.chat.sync import SyncConversation

__all__ = [
    "ChatItem",
    "Conversation",
    "Meaning",
    "MessageReceived",
    "OpFinished",
    "OpRequested",
    "QuestionAsked",
    "Redirected",
    "Reply",
    "ReplyDelta",
    "Restarted",
    "SkillEnded",
    "SkillProgressed",
    "SkillStarted",
    "Stopped",
    "SyncConversation",
    "open_conversation",
]
