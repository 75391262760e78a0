"""Search providers: the HTTP request for a query, and the hits in its response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlencode

import msgspec

if TYPE_CHECKING:
    from reyn.config.values import SearchProvider


class Query(NamedTuple):
    """An HTTP request to a provider."""

    url: str
    method: str = "GET"
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed
    body: bytes = b""


class Hit(msgspec.Struct, frozen=True):
    """One result of a search."""

    title: str
    url: str
    snippet: str


class Provider(Protocol):
    """A search service. `key` is its API key; empty if the service needs none."""

    needs_key: bool

    def query(self, base: str, key: str, text: str, most: int) -> Query: ...

    def hits(self, answer: Any) -> list[Hit]:
        """Return the results in the decoded JSON of an answer.

        Raises:
            KeyError: The response has an unexpected shape.
            TypeError: The response has an unexpected shape.
        """
        ...


class Brave:
    needs_key = True

    def query(self, base: str, key: str, text: str, most: int) -> Query:
        headers = {"Accept": "application/json", "X-Subscription-Token": key}
        return Query(f"{base}?{urlencode({'q': text, 'count': min(most, 20)})}", headers=headers)

    def hits(self, answer: Any) -> list[Hit]:
        return [_hit(one, "description") for one in answer.get("web", {"results": []})["results"]]


class Tavily:
    needs_key = True

    def query(self, base: str, key: str, text: str, most: int) -> Query:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        return Query(base, "POST", headers, msgspec.json.encode({"query": text, "max_results": min(most, 20)}))

    def hits(self, answer: Any) -> list[Hit]:
        return [_hit(one, "content") for one in answer["results"]]


class SearXng:
    needs_key = False

    def query(self, base: str, key: str, text: str, most: int) -> Query:
        return Query(f"{base.rstrip('/')}/search?{urlencode({'q': text, 'format': 'json'})}")

    def hits(self, answer: Any) -> list[Hit]:
        return [_hit(one, "content") for one in answer["results"]]


def _hit(value: Any, snippet: str) -> Hit:
    return Hit(str(value["title"]), str(value["url"]), str(value.get(snippet) or ""))


PROVIDERS: dict[SearchProvider, Provider] = {"brave": Brave(), "tavily": Tavily(), "searxng": SearXng()}
