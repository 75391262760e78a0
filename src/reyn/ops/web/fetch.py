"""The op `web_fetch`: fetch a page and return its text.

A URL can carry data out, so that each new host asks a person unless a rule allows it. Private and loopback addresses
need a rule that names them (`private:HOST`). A redirect to another host is returned instead of followed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from reyn.ops.budget import OpFailed
from reyn.ops.op import Plan
from reyn.ops.web.addresses import is_private_name, parse_url
from reyn.ops.web.client import TimedOut, request
from reyn.ops.web.pages import to_page
from reyn.permissions import Allowed, Denied, NeedsApproval, refusal
from reyn.permissions.rules import PRIVATE
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, boolean, integer, result, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.ops.op import Call, Env, Result
    from reyn.ops.web.addresses import Target
    from reyn.ops.web.client import Response

_MAX_REDIRECTS = 5

_FORM = OpForm(
    op=None,
    summary="Fetch a web page and return its text as Markdown.",
    arguments=arguments(
        "web_fetch",
        None,
        {"url": text(4_000, min_length=1)},
        {
            "timeout": integer(1, 120, default=30),
            "max_length": integer(1, 1_000_000, default=50_000),
            "prompt": text(4_000, default=""),
        },
    ),
    effect="idempotent",
    result=result(
        "web_fetch",
        None,
        {
            "url": {"type": "string"},
            "status_code": {"type": "integer"},
            "content_type": {"type": "string"},
            "title": {"type": "string"},
            "content": {"type": "string"},
            "truncated": boolean(default=False),
            "redirect": {"type": "string"},
        },
    ),
    example={"kind": "web_fetch", "url": "https://example.org/"},
)


class WebFetchOp:
    """Fetches by GET. The permission is decided by host."""

    spec = OpSpec("web_fetch", _FORM.summary, "idempotent", "web", forms=(_FORM,), takes_time=True)

    def target(self, call: Call) -> str:
        return parse_url(call.args["url"]).name

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        """Ask for approval if a rule asks about the private address that the host may have.

        A host that is private in any case is denied at once: an approval of the host would not be enough.
        """
        target = parse_url(call.args["url"])
        verdict = env.gate.capability("web", f"{PRIVATE}{target.name}")
        if isinstance(verdict, Denied) and is_private_name(target.host):
            return Denied(verdict.rule, _private(target, verdict.reason))
        return Plan(approval=verdict.rule) if isinstance(verdict, NeedsApproval) else Plan()

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        """Fetch the page, following redirects as long as the rules allow the host without asking."""
        args = call.args
        target = parse_url(args["url"])
        seconds = float(args.get("timeout", 30))
        first = target.name
        try:
            async with asyncio.timeout(seconds):
                for _ in range(_MAX_REDIRECTS + 1):
                    allow = private_check(target, plan, env)
                    response = await request(target, seconds=seconds, allow_private=allow)
                    if not response.location:
                        return await _result(call, target, response, args.get("max_length", 50_000))
                    following = _redirected(target, response.location)
                    if reason := _not_followed(target, following, first, env):
                        message = f"the page redirects to {reason}; fetch that URL if you need it"
                        return call.error(message, status_code=response.status, redirect=following.url)
                    target = following
        except (TimedOut, TimeoutError):
            return call.timeout(f"`{target.name}` did not answer within {seconds:g} seconds", url=target.url)
        return call.error(f"the page redirects more than {_MAX_REDIRECTS} times", redirect=target.url)


def _redirected(target: Target, location: str) -> Target:
    try:
        return parse_url(urljoin(target.url, location))
    except ValueError as error:
        raise OpFailed(f"the page redirects to `{location[:200]}`, which is not a valid URL") from error


def _not_followed(target: Target, following: Target, approved: str, env: Env) -> str:
    """Return why a redirect is returned to the model instead of followed; empty if it is followed."""
    if following.name != approved and not isinstance(env.gate.capability("web", following.name), Allowed):
        return f"`{following.name}`, another host"
    if (target.scheme, following.scheme) == ("https", "http"):
        return f"`{following.name}` without encryption"
    return ""


def private_check(target: Target, plan: Plan, env: Env) -> Callable[[], OpFailed | None]:
    """Return a function that says why a private address of a target must not be used; `None` if it may be."""

    def refused() -> OpFailed | None:
        problem = refusal(env.gate.capability("web", f"{PRIVATE}{target.name}"), approved=plan.approved)
        if problem is None:
            return None
        return OpFailed(_private(target, problem.reason), rule=problem.rule)

    return refused


def _private(target: Target, reason: str) -> str:
    return f"`{target.name}` has a private or loopback address: {reason}"


async def _result(call: Call, target: Target, response: Response, most: int) -> Result:
    content_type = response.headers.get("content-type", "")[:200]
    # Converting megabytes takes a second; the event loop continues meanwhile.
    page = await asyncio.to_thread(to_page, response.content, content_type, target.url)
    fields = {
        "url": target.url,
        "status_code": response.status,
        "content_type": content_type,
        "content": page.text[:most],
        "truncated": response.is_truncated or len(page.text) > most,
    }
    if page.title:
        fields["title"] = page.title[:500]
    if response.status >= 400:
        return call.error(f"the server answered with status {response.status}", **fields)
    return call.ok(**fields)
