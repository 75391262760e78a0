"""The op `web_search`: search the web with the provider that the operator configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.config.values import SEARCH_URLS
from reyn.errors import ReynError
from reyn.ops.budget import OpFailed
from reyn.ops.op import OpSetup, Plan
from reyn.ops.web.addresses import parse_url
from reyn.ops.web.client import TimedOut, request
from reyn.ops.web.fetch import private_check
from reyn.ops.web.providers import PROVIDERS
from reyn.permissions import NeedsApproval
from reyn.permissions.rules import PRIVATE
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, array, integer, result, text

if TYPE_CHECKING:
    from reyn.config.values import SearchSettings
    from reyn.ops.op import Call, Env, Result
    from reyn.ops.web.providers import Hit, Provider

_SECONDS = 30.0
_MAX_TEXT = 2_000

_FORM = OpForm(
    op=None,
    summary="Search the web and return titles, URLs and snippets.",
    arguments=arguments(
        "web_search", None, {"query": text(1_000, min_length=1)}, {"max_results": integer(1, 20, default=10)}
    ),
    effect="idempotent",
    result=result(
        "web_search",
        None,
        {
            "query": {"type": "string"},
            "provider": {"type": "string"},
            "results": array(
                {
                    "type": "object",
                    "properties": {name: {"type": "string"} for name in ("title", "url", "snippet")},
                },
                20,
            ),
        },
    ),
    example={"kind": "web_search", "query": "reciprocal rank fusion"},
)


class WebSearchOp:
    """Searches with one provider. Without one, the op says how to configure it."""

    spec = OpSpec("web_search", _FORM.summary, "idempotent", "web", forms=(_FORM,), takes_time=True)

    def __init__(self, setup: OpSetup | None = None) -> None:
        self._setup = setup

    def set_up(self, setup: OpSetup) -> WebSearchOp:
        return WebSearchOp(setup)

    def target(self, call: Call) -> str:
        return parse_url(self._service()[2]).name

    def plan(self, call: Call, env: Env) -> Plan:
        self._service()
        verdict = env.gate.capability("web", f"{PRIVATE}{self.target(call)}")
        return Plan(approval=verdict.rule) if isinstance(verdict, NeedsApproval) else Plan()

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        settings, provider, base = self._service()
        most = call.args.get("max_results", 10)
        query = provider.query(base, self._key(settings, base), call.args["query"], most)
        target = parse_url(query.url)
        try:
            response = await request(
                target,
                seconds=_SECONDS,
                allow_private=private_check(target, plan, env),
                method=query.method,
                headers=query.headers,
                body=query.body,
            )
        except TimedOut as error:
            return call.timeout(str(error), query=call.args["query"], provider=settings.provider)
        if response.status != 200:
            reason = response.headers.get("reason", "")
            raise OpFailed(f"`{settings.provider}` answered with status {response.status} {reason}".rstrip())
        try:
            hits = provider.hits(msgspec.json.decode(response.content))[:most]
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
            raise OpFailed(f"the answer of `{settings.provider}` is not understood") from error
        return call.ok(query=call.args["query"], provider=settings.provider, results=[_fields(hit) for hit in hits])

    def _service(self) -> tuple[SearchSettings, Provider, str]:
        """Return the settings, the provider and its URL."""
        settings = self._setup.config.web.search if self._setup else None
        if settings is None:
            raise OpFailed(
                "no search provider is configured; the operator sets `web: {search: {provider: …}}` in reyn.yaml"
            )
        base = settings.url or SEARCH_URLS[settings.provider]
        if not base:
            raise OpFailed(f"the search provider `{settings.provider}` needs `web.search.url`, the URL of its server")
        return settings, PROVIDERS[settings.provider], base

    def _key(self, settings: SearchSettings, base: str) -> str:
        assert self._setup is not None
        if settings.key is None:
            if PROVIDERS[settings.provider].needs_key:
                raise OpFailed(
                    f"the search provider `{settings.provider}` needs `web.search.key`, such as `secret://NAME`"
                )
            return ""
        try:
            return self._setup.secret(settings.key, base)
        except ReynError as error:
            raise OpFailed(f"the key of the search provider cannot be used: {error.message}") from error


def _fields(hit: Hit) -> dict[str, str]:
    return {name: value[:_MAX_TEXT] for name, value in msgspec.to_builtins(hit).items()}
