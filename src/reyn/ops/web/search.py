"""The op `web_search`: search the web with the provider that the operator configured."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from reyn.config.servers import SEARCH_URLS, SearchProvider, SearchSettings
from reyn.documents import JsonError, decode_json
from reyn.errors import ReynError
from reyn.ops.budget import OpFailed
from reyn.ops.op import Call, Env, Plan, ProjectOp, Result, approval_of
from reyn.ops.web.client import TimedOut, parse_url, request
from reyn.ops.web.fetch import address_check
from reyn.permissions.hosts import PRIVATE
from reyn.vocabulary.error_names import RATE_LIMITED, TOO_MANY_REQUESTS
from reyn.vocabulary.schemas import STRING, array, integer, single_form, text

_SECONDS = 30.0
_MAX_TEXT = 2_000


class SearchRequest(NamedTuple):
    """An HTTP request to a provider."""

    url: str
    method: str = "GET"
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed
    body: bytes = b""


class Provider:
    """A search service. `key` is its API key; empty if the service needs none.

    Attributes:
        needs_key: Whether it needs a key.
        snippet: The field of a hit that has its text.
    """

    needs_key = True
    snippet = "content"

    def query(self, base: str, key: str, text: str, most: int) -> SearchRequest:
        """Return the request for a query."""
        raise NotImplementedError

    def hits(self, answer: Any) -> list[Any]:
        """Return the results in the decoded JSON of an answer; it may have an unexpected shape."""
        return list(answer["results"])


class Brave(Provider):
    snippet = "description"

    def query(self, base: str, key: str, text: str, most: int) -> SearchRequest:
        headers = {"Accept": "application/json", "X-Subscription-Token": key}
        return SearchRequest(f"{base}?{urlencode({'q': text, 'count': min(most, 20)})}", headers=headers)

    def hits(self, answer: Any) -> list[Any]:
        return list(answer.get("web", {"results": []})["results"])


class Tavily(Provider):
    def query(self, base: str, key: str, text: str, most: int) -> SearchRequest:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        return SearchRequest(base, "POST", headers, msgspec.json.encode({"query": text, "max_results": min(most, 20)}))


class SearXng(Provider):
    needs_key = False

    def query(self, base: str, key: str, text: str, most: int) -> SearchRequest:
        return SearchRequest(f"{base.rstrip('/')}/search?{urlencode({'q': text, 'format': 'json'})}")


PROVIDERS: dict[SearchProvider, Provider] = {"brave": Brave(), "tavily": Tavily(), "searxng": SearXng()}


class WebSearchOp(ProjectOp):
    """Searches with one provider. Without one, the op says how to configure it."""

    spec = single_form(
        "web_search",
        "Search the web and return titles, URLs and snippets.",
        "idempotent",
        {"query": text(1_000, min_length=1)},
        {"max_results": integer(1, 20, default=10)},
        results={
            "query": STRING,
            "provider": STRING,
            "results": array({"type": "object", "properties": {"title": STRING, "url": STRING, "snippet": STRING}}, 20),
        },
        example={"query": "reciprocal rank fusion"},
        permission="web",
        takes_time=True,
        concurrent=True,
        errors=(RATE_LIMITED,),
    )

    def target(self, call: Call) -> str:
        return parse_url(self._service()[2]).name

    def plan(self, call: Call, env: Env) -> Plan:
        self._service()
        verdict = env.gate.capability("web", f"{PRIVATE}{self.target(call)}")
        return Plan(approval=approval_of(verdict))

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        settings, provider, base = self._service()
        most = self.spec.complete(call.args)["max_results"]
        query = provider.query(base, self._key(settings, base), call.args["query"], most)
        target = parse_url(query.url)
        try:
            response = await request(
                target,
                seconds=_SECONDS,
                check=address_check(target, env.gate, plan.approved),
                method=query.method,
                headers=query.headers,
                body=query.body,
            )
        except TimedOut as error:
            return call.timeout(str(error), query=call.args["query"], provider=settings.provider)
        if response.status != 200:
            reason = response.headers.get("reason", "")
            fields = {"error_name": RATE_LIMITED} if response.status == TOO_MANY_REQUESTS else {}
            raise OpFailed(f"`{settings.provider}` answered with status {response.status} {reason}".rstrip(), **fields)
        try:
            hits = [
                {"title": str(one["title"]), "url": str(one["url"]), "snippet": str(one.get(provider.snippet) or "")}
                for one in provider.hits(decode_json(response.content))
            ][:most]
        except (JsonError, KeyError, TypeError, AttributeError) as error:
            raise OpFailed(f"the answer of `{settings.provider}` is not understood") from error
        results = [{name: value[:_MAX_TEXT] for name, value in hit.items()} for hit in hits]
        return call.ok(query=call.args["query"], provider=settings.provider, results=results)

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
        if settings.key is None:
            if PROVIDERS[settings.provider].needs_key:
                raise OpFailed(
                    f"the search provider `{settings.provider}` needs `web.search.key`, such as `secret://NAME`"
                )
            return ""
        try:
            return self.project.secret(settings.key, base)
        except ReynError as error:
            raise OpFailed(f"the key of the search provider cannot be used: {error.message}") from error
