"""The op `notify`: queue a message for a channel, as one JSON file per message in the run's workspace.

A complete op in one module: its specification, `plan` and `perform`. The entry point in `pyproject.toml` registers it.
"""

from __future__ import annotations

import hashlib
import json

from reyn.ops import Call, Env, OpForm, OpSpec, Plan, Result
from reyn.vocabulary.schemas import arguments, result, text

FORM = OpForm(
    op=None,
    summary="Queue a message for a channel.",
    arguments=arguments("notify", None, {"channel": text(80, least=1), "message": text(2_000, least=1)}),
    effect="idempotent",
    result=result("notify", None, {"channel": {"type": "string"}, "queued_as": {"type": "string"}}),
    example={"kind": "notify", "channel": "ops", "message": "The nightly report is ready."},
)


class NotifyOp:
    spec = OpSpec("notify", FORM.summary, "idempotent", permission="tool", forms=(FORM,))

    def plan(self, call: Call, env: Env) -> Plan:
        """Nothing to look at: the gate has checked the permission `tool`."""
        return Plan("permission: tool")

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        """Write the message under a name derived from the call's key, so that a second attempt writes it once."""
        name = f"{hashlib.sha256(call.key.encode()).hexdigest()[:16]}.json"
        outbox = env.roots.workspace / "outbox"
        outbox.mkdir(parents=True, exist_ok=True)
        body = {"channel": call.args["channel"], "message": call.args["message"]}
        (outbox / name).write_text(json.dumps(body), encoding="utf-8")
        return call.ok(channel=call.args["channel"], queued_as=name)
