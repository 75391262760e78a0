"""Operations on the project: conversations, the session of a browser, and the state of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.responses import PlainTextResponse, Response

from reyn._version import __version__
from reyn.chat.meaning import Meaning, meaning_of
from reyn.chat.services.snapshot_journal import (
    RecordedConversation,
    RecordedMessage,
    find_conversation,
    latest_conversations,
)
from reyn.client.values import Begun, RunView
from reyn.errors import AgentNotFound, InputInvalid, ReynError
from reyn.gateway.metrics import metrics_text
from reyn.gateway.operations import ApiCall, operation
from reyn.gateway.site import session_cookie
from reyn.gateway.streams import change_stream
from reyn.gateway.views import run_view
from reyn.journal.kinds import AGENT_PREFIX
from reyn.journal.results import TokenScope
from reyn.models import Image, Message

if TYPE_CHECKING:
    from reyn.gateway.access import Principal

# -- the session --------------------------------------------------------------------------------------


class SignIn(msgspec.Struct, forbid_unknown_fields=True):
    """A login code, or an access token."""

    secret: str


class Session(msgspec.Struct):
    """Who is signed in."""

    user: str
    scopes: tuple[TokenScope, ...]
    skills: tuple[str, ...]
    project: str
    version: str


class BegunSession(Session):
    """Who signed in. Requests with the cookie send `key` in the header `X-Session-Key`; it is returned once."""

    key: str


@operation("POST", "/api/session", None, body=SignIn, result=BegunSession)
async def sign_in(call: ApiCall) -> Response:
    """Sign in with a login code or a token. The response sets a cookie, and has a key: a session needs both."""
    client = call.request.client
    begun = call.site.access.sign_in(call.body.secret, client.host if client else "")
    session = msgspec.structs.asdict(_session(call, begun.principal))
    response = Response(msgspec.json.encode(BegunSession(**session, key=begun.key)), media_type="application/json")
    secure = call.request.url.scheme == "https"
    name = session_cookie(call.request)
    response.set_cookie(
        name, begun.cookie, max_age=begun.seconds, path="/", httponly=True, samesite="strict", secure=secure
    )
    return response


@operation("GET", "/api/session", "view", result=Session)
def get_session(call: ApiCall) -> Session:
    """Return who is signed in."""
    return _session(call, call.principal)


@operation("DELETE", "/api/session", "view", status=204)
def sign_out(call: ApiCall) -> Response:
    """End the session."""
    call.site.access.sign_out(call.principal)
    response = Response(status_code=204)
    response.delete_cookie(session_cookie(call.request), path="/", secure=call.request.url.scheme == "https")
    return response


def _session(call: ApiCall, principal: Principal) -> Session:
    root = call.site.runtime.project.root
    return Session(principal.name, principal.scopes, principal.skills, root.name, __version__)


# -- conversations ------------------------------------------------------------------------------------


class ConversationItem(msgspec.Struct):
    """A conversation in a list."""

    run_id: str
    agent: str
    display_status: str
    updated: int
    title: str
    first_message: str
    messages: int


class ConversationQuery(msgspec.Struct):
    """How many conversations to list."""

    limit: int = 30


@operation("GET", "/api/conversations", "view", query=ConversationQuery, result=list[ConversationItem])
def list_conversations(call: ApiCall) -> list[ConversationItem]:
    """List conversations, the latest first."""
    runtime = call.site.runtime
    agents = [agent for agent in runtime.project.agents if call.principal.sees(f"{AGENT_PREFIX}{agent}")]
    limit = max(1, min(call.query.limit, 200))
    latest = [one for one in latest_conversations(runtime.runs, agents, limit) if call.principal.sees(one.row.skill)]
    return [_item(one) for one in latest[:limit]]


def _item(one: RecordedConversation) -> ConversationItem:
    row, (title, first, messages) = one.row, msgspec.structs.astuple(one.overview)
    return ConversationItem(row.run_id, one.agent, one.display_status, row.updated, title, first[:200], messages)


class SentImage(msgspec.Struct, forbid_unknown_fields=True):
    """An image of a message, in base64."""

    media_type: str
    data: str


class MessageBody(msgspec.Struct, forbid_unknown_fields=True):
    """A message to an agent, with images."""

    text: str
    images: list[SentImage] = []

    def message(self) -> str | Message:
        """Return it as the runtime takes it."""
        if not self.images:
            return self.text
        return Message("user", self.text, tuple(Image(one.media_type, one.data) for one in self.images))


class BeginConversation(MessageBody, forbid_unknown_fields=True):
    """The first message of a conversation with an agent; by default the agent `default`."""

    agent: str | None = None
    run_id: str | None = None


@operation("POST", "/api/conversations", "start", body=BeginConversation, result=Begun, status=202)
async def begin_conversation(call: ApiCall) -> Begun:
    """Begin a conversation with a message. It executes in this process; the feed of changes has its items."""
    body = call.body
    if body.agent is not None and not body.agent.isprintable():
        raise AgentNotFound(f"no agent `{body.agent!r}`")
    call.principal.check_skill(f"{AGENT_PREFIX}{body.agent or 'default'}")
    call.site.check_open_to(body.run_id, call.principal)
    run = await call.site.conversations.begin(body.agent, body.run_id, body.message(), call.principal.name)
    return Begun(run)


class ConversationView(msgspec.Struct):
    """A conversation: its run, its messages, and whether this server has it open."""

    run: RunView
    title: str
    messages: list[RecordedMessage]
    is_open: bool


@operation("GET", "/api/conversations/{run}", "view", result=ConversationView)
def get_conversation(call: ApiCall) -> ConversationView:
    """Return a conversation with its messages."""
    runtime, run = call.site.runtime, call.run
    found = find_conversation(runtime.runs, run)
    view, is_open = run_view(runtime, found.row), call.site.conversations.is_open(run)
    return ConversationView(view, found.overview.title, found.messages, is_open)


@operation("POST", "/api/conversations/{run}/messages", "start", body=MessageBody, result=Begun, status=202)
async def say(call: ApiCall) -> Begun:
    """Say something in a conversation. The journal records the name of the token as the user."""
    run = call.origin
    await call.site.conversations.say(run, call.body.message(), call.principal.name)
    call.site.changes.look()
    return Begun(run)


class TypedText(msgspec.Struct, forbid_unknown_fields=True):
    """A text that a user typed in a conversation."""

    text: str


@operation("POST", "/api/conversations/{run}/meaning", "view", body=TypedText, result=Meaning)
def interpret(call: ApiCall) -> Meaning:
    """Return what a text means: the answer to the oldest open question, or a message. Nothing is sent.

    Send an answer to the run of the question with `/api/runs/{run}/answer`, a message with the operation before.
    """
    from reyn.chat.recorded import asked_in

    return meaning_of(call.body.text, asked_in(call.site.runtime, call.run))


class Abort(msgspec.Struct, forbid_unknown_fields=True):
    """Why a reply is stopped."""

    reason: str = ""


@operation("POST", "/api/conversations/{run}/abort", "start", body=Abort, result=Begun, status=202)
async def abort(call: ApiCall) -> Begun:
    """Stop the reply in progress; the conversation continues."""
    run = call.run
    call.site.conversations.abort(run, call.body.reason)
    return Begun(run)


class Edit(MessageBody, forbid_unknown_fields=True):
    """Another text in place of a message: the number of the message."""

    number: int = 0


@operation("POST", "/api/conversations/{run}/edit", "start", body=Edit, result=Begun, status=202)
async def edit_message(call: ApiCall) -> Begun:
    """Say something else in place of a message, in a fork. The conversation itself does not change.

    In place of the first message, which has nothing before it, a new conversation begins.
    """
    site, run = call.site, call.origin
    runtime = site.runtime
    if call.body.number < 1:
        raise InputInvalid("`number` is the number of a message, from 1")
    found = find_conversation(runtime.runs, run)
    if call.body.number == 1:
        return Begun(await site.conversations.begin(found.agent, None, call.body.message(), call.principal.name))
    at, new = found.fork_point(call.body.number), runtime.services.ids.new()
    site.work.check()
    await runtime.fork(run, at=at, run_id=new)
    await site.conversations.begin(None, new, call.body.message(), call.principal.name)
    return Begun(new)


class Title(msgspec.Struct, forbid_unknown_fields=True):
    """A title; an empty one removes it."""

    title: str


@operation("PUT", "/api/conversations/{run}/title", "start", body=Title, result=Begun)
def rename_conversation(call: ApiCall) -> Begun:
    """Give a conversation a title."""
    run = call.run
    call.site.runtime.conversations.rename(run, call.body.title, by=call.principal.name)
    return Begun(run)


class MemoryView(msgspec.Struct):
    """An entry of the memory of a conversation."""

    id: str
    text: str


@operation("GET", "/api/conversations/{run}/memory", "view", result=list[MemoryView])
def get_memory(call: ApiCall) -> list[MemoryView]:
    """Return what a conversation remembers."""
    return [MemoryView(entry.id, entry.text) for entry in call.site.runtime.runs.memory(call.run)]


# -- the server ---------------------------------------------------------------------------------------


@operation("GET", "/api/stream", "view", media_type="text/event-stream")
async def stream_changes(call: ApiCall) -> Response:
    """Stream what changes in all runs, for pages: which run has new events, deltas, items of conversations."""
    return change_stream(call.site, call.principal)


@operation("GET", "/healthz", None, media_type="text/plain")
async def healthz(call: ApiCall) -> Response:
    """Return 200 while the process lives."""
    return PlainTextResponse("ok\n")


@operation("GET", "/readyz", None, media_type="text/plain")
def readyz(call: ApiCall) -> Response:
    """Return 200 while the server takes requests and reads the journal, else 503."""
    try:
        call.site.runtime.runs.is_recorded("readyz")
    except ReynError:
        return PlainTextResponse("the journal is not available\n", 503)
    if call.site.is_draining:
        return PlainTextResponse("draining\n", 503)
    return PlainTextResponse("ok\n")


@operation("GET", "/metrics", "view", media_type="text/plain; version=0.0.4")
def metrics(call: ApiCall) -> Response:
    """Return figures for Prometheus, without content."""
    call.principal.check_all_skills()
    return Response(metrics_text(call.site), media_type="text/plain; version=0.0.4; charset=utf-8")
