"""`SyncConversation`: `Conversation` for synchronous code. The types are in `sync.pyi`."""

from reyn.chat.conversation import Conversation, ConversationItems, ReplyStream
from reyn.runtime.sync_form import synchronous

SyncConversation = synchronous(Conversation, "SyncConversation", module=__name__, is_on_loop=True)
SyncReplyStream = synchronous(ReplyStream, "SyncReplyStream", module=__name__)
SyncConversationItems = synchronous(ConversationItems, "SyncConversationItems", module=__name__)
