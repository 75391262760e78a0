"""Plan and perform one op as the kernel does, and validate its result against the schema."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cache
from typing import Any

from reyn.journal import Blob
from reyn.jsonschema import compile_schema
from reyn.ops import Call, Env, Plan, standard_ops
from reyn.ops.execution import apply_changes, perform_op, plan_op
from reyn.permissions import Denied, Gate, Policy
from reyn.workspace import RecordedFiles, Roots
from tests.support import VOCABULARY

FILE_BYTES = 10_000
FILE = standard_ops().get("file")


class Desk:
    """The file op of one run."""

    def __init__(
        self,
        roots: Roots,
        full_content: Mapping[str, str] | None = None,
        file_bytes: int = FILE_BYTES,
        policy: Policy | None = None,
    ) -> None:
        self.roots = roots
        self.contents: dict[str, bytes] = {}
        names = {name: self.keep(text.encode()) for name, text in (full_content or {}).items()}
        recorded = RecordedFiles()
        recorded.own.files.update(names)
        self.env = Env(roots, Gate(roots, policy or Policy()), self.contents.__getitem__, recorded, file_bytes)
        self.calls = 0

    def keep(self, content: bytes) -> str:
        blob = Blob.of(content)
        self.contents[blob.hash] = blob.content
        return blob.hash

    def call(self, op: str, **args: Any) -> Call:
        self.calls += 1
        args = {"kind": "file", "op": op, **args}
        error = _validator(op, "arguments").first_error(args)
        assert error is None, error
        return Call(f"call-{self.calls}", args)

    def plan(self, call: Call) -> Plan | Denied:
        plan = plan_op(FILE, call, self.env)
        for blob in plan.blobs if isinstance(plan, Plan) else ():
            assert self.keep(blob.content) == blob.hash
        return plan

    def perform(self, call: Call, plan: Plan) -> dict[str, Any]:
        if plan.changes:
            result = apply_changes(call, plan.changes, self.env).problem or plan.result
        else:
            result = plan.result or asyncio.run(perform_op(FILE, call, plan, self.env)).result
        error = _validator(str(call.op), "result").first_error(result)
        assert error is None, error
        assert list(result)[:3] == ["kind", "op", "status"]
        return result

    def do(self, op: str, **args: Any) -> dict[str, Any]:
        call = self.call(op, **args)
        plan = self.plan(call)
        return call.denied(plan) if isinstance(plan, Denied) else self.perform(call, plan)

    def put(self, path: str, content: str | bytes) -> None:
        target = self.roots.project / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)


@cache
def _validator(op: str, part: str) -> Any:
    spec = VOCABULARY.op("file")
    assert spec is not None
    form = spec.form(op)
    assert form is not None
    return compile_schema(getattr(form, part))


def without_envelope(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name not in ("kind", "op", "status")}
