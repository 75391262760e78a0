"""The op `web_fetch`: fetch a page and return its text.

A URL can carry data out, so that each new host asks a person unless a rule allows it. Private and loopback addresses
need a rule that names them (`private:HOST`). A redirect to another host is returned instead of followed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin

from reyn.ops.budget import OpFailed, OpRefused
from reyn.ops.op import Call, Env, Plan, Result, approval_of
from reyn.ops.web.client import Response, TimedOut, WebTarget, parse_url, request
from reyn.permissions import Allowed, Denied, Gate, refusal
from reyn.permissions.hosts import PRIVATE, Host, is_public, parse_address
from reyn.vocabulary.error_names import RATE_LIMITED, TOO_MANY_REQUESTS
from reyn.vocabulary.schemas import INTEGER, STRING, boolean, integer, single_form, text

_MAX_REDIRECTS = 5
_GRACE_SECONDS = 0.5
"""The limit of the conversion ends first, with a message of its own."""


class WebFetchOp:
    """Fetches by GET. The permission is decided by host."""

    spec = single_form(
        "web_fetch",
        "Fetch a web page and return its text as Markdown.",
        "idempotent",
        {"url": text(4_000, min_length=1)},
        {
            "timeout": integer(1, 120, default=30),
            "max_length": integer(1, 1_000_000, default=50_000),
            "prompt": text(4_000, default=""),
        },
        results={
            "url": STRING,
            "status_code": INTEGER,
            "content_type": STRING,
            "title": STRING,
            "content": STRING,
            "truncated": boolean(default=False),
            "redirect": STRING,
        },
        example={"url": "https://example.org/"},
        permission="web",
        takes_time=True,
        errors=(RATE_LIMITED,),
        concurrent=True,
    )

    def target(self, call: Call) -> str:
        return parse_url(call.args["url"]).name

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        """Ask for approval if a rule asks about the private address that the host may have.

        A host that is private in any case is denied at once: an approval of the host would not be enough.
        """
        target = parse_url(call.args["url"])
        verdict = env.gate.capability("web", f"{PRIVATE}{target.name}")
        if isinstance(verdict, Denied) and Host(target.host).is_known_private:
            return Denied(verdict.rule, _private(target, verdict.reason))
        return Plan(approval=approval_of(verdict))

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        """Fetch the page, following redirects as long as the rules allow the host without asking."""
        import asyncio

        args = self.spec.complete(call.args)
        target = parse_url(args["url"])
        seconds = float(args["timeout"])
        first, loop = target.name, asyncio.get_running_loop()
        deadline = loop.time() + seconds
        try:
            async with asyncio.timeout_at(deadline + _GRACE_SECONDS):
                for _ in range(_MAX_REDIRECTS + 1):
                    response = await request(
                        target, seconds=seconds, check=address_check(target, env.gate, plan.approved)
                    )
                    if not response.location:
                        left = deadline - loop.time()
                        return await _result(call, target, response, args["max_length"], left)
                    following = _redirected(target, response.location)
                    if reason := _not_followed(target, following, first, env):
                        message = f"the page redirects to {reason}; fetch that URL if you need it"
                        return call.error(message, status_code=response.status, redirect=following.url)
                    target = following
        except (TimedOut, TimeoutError):
            return call.timeout(f"`{target.name}` did not answer within {seconds:g} seconds", url=target.url)
        return call.error(f"the page redirects more than {_MAX_REDIRECTS} times", redirect=target.url)


def _redirected(target: WebTarget, location: str) -> WebTarget:
    try:
        return parse_url(urljoin(target.url, location))
    except ValueError as error:
        raise OpFailed(f"the page redirects to `{location[:200]}`, which is not a valid URL") from error


def _not_followed(target: WebTarget, following: WebTarget, approved: str, env: Env) -> str:
    """Return why a redirect is returned to the model instead of followed; empty if it is followed."""
    if following.name != approved and not isinstance(env.gate.capability("web", following.name), Allowed):
        return f"`{following.name}`, another host"
    if (target.scheme, following.scheme) == ("https", "http"):
        return f"`{following.name}` without encryption"
    return ""


def address_check(target: WebTarget, gate: Gate, approved: str = "") -> Callable[[list[str]], None]:
    """Return a function that raises `OpRefused` if the rules forbid an address that a target resolves to."""

    def check(addresses: list[str]) -> None:
        is_private = not all(map(is_public, addresses))
        if is_private and (problem := refusal(gate.capability("web", f"{PRIVATE}{target.name}"), approved=approved)):
            raise OpRefused(_private(target, problem.reason), problem.rule)
        if parse_address(target.host) is not None:
            return  # the gate decided about the address itself
        named = gate.restriction("web", target.name)
        for address in addresses:
            found = gate.restriction("web", Host(address, str(target.port), not is_public(address)).text)
            if found is not None and (isinstance(found, Denied) or found != named):
                reason = f"`{target.name}` resolves to `{address}`: {found.reason} for it"
                raise OpRefused(reason, found.rule)

    return check


def _private(target: WebTarget, reason: str) -> str:
    return f"`{target.name}` has a private or loopback address: {reason}"


async def _result(call: Call, target: WebTarget, response: Response, most: int, seconds: float) -> Result:
    from reyn.ops.web.pages import ContentFailed, to_page

    content_type = response.headers.get("content-type", "")[:200]
    fields: dict[str, Any] = {"url": target.url, "status_code": response.status, "content_type": content_type}
    try:
        page = await to_page(response.content, content_type, target.url, most=most, seconds=seconds)
    except ContentFailed as error:
        report = call.timeout if error.timed_out else call.error
        return report(f"the page was fetched, but {error}", **fields)
    fields |= {"content": page.text[:most], "truncated": response.is_truncated or page.is_truncated}
    if page.title:
        fields["title"] = page.title[:500]
    if response.status == TOO_MANY_REQUESTS:
        fields["error_name"] = RATE_LIMITED
    if response.status >= 400:
        return call.error(f"the server answered with status {response.status}", **fields)
    return call.ok(**fields)
