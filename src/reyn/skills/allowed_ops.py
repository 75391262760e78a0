"""The ops that a phase allows: what a name stands for, and why a phase cannot allow it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.documents import nearest
from reyn.errors import codes

if TYPE_CHECKING:
    from reyn.documents import Document
    from reyn.errors import Finding
    from reyn.vocabulary import Vocabulary

UNKNOWN_OP_FIX = "correct the name, or install the package that provides the op"


def members(kind: str, vocabulary: Vocabulary) -> list[str]:
    """Return the op kinds that a name stands for: `mcp:files/*` is every tool of the server `files`."""
    if not kind.endswith("/*"):
        return [kind]
    return sorted(known for known in vocabulary.op_kinds if known.startswith(kind[:-1]))


def check_allowed_op(
    document: Document, index: int, kind: str, vocabulary: Vocabulary, *, is_conversation: bool
) -> Finding | None:
    """Return the finding about an entry of `allowed_ops` in the front matter of a phase, if there is one."""
    path = ("allowed_ops", index)
    if kind.endswith("/*") and members(kind, vocabulary):
        return None
    spec = vocabulary.op(kind)
    if spec is None:
        fix = nearest(kind, vocabulary.op_kinds)
        if kind.startswith("mcp:") and not fix:
            fix = "add the MCP server to the configuration and accept its tools"
        return document.finding(codes.UNKNOWN_OP, f"unknown op `{kind}`", *path, fix=fix or UNKNOWN_OP_FIX)
    if not vocabulary.is_offered(kind):
        fix = f"write a step: `- {kind}: {{…}}`"
        return document.finding(codes.UNKNOWN_OP, f"no phase can allow `{kind}`", *path, fix=fix)
    if vocabulary.is_reserved(kind):
        message = f"op `{kind}` is reserved for a later version; Reyn does not offer it to the model"
        return document.finding(codes.UNSUPPORTED, message, *path, severity="warning")
    if spec.is_for_conversations and not is_conversation:
        message = f"op `{kind}` is for conversations, but the phase is not one"
        return document.finding(codes.CONVERSATION_OP, message, *path, fix="set `conversation: true`, or remove it")
    return None
