"""The HTTP server: an API, streams and web pages over the public runtime.

    from reyn.gateway import Gateway, create_app

It knows the runtime and nothing below it, and has no rule of its own: what a request may do is decided by the scopes of
its token and by the runtime. `reyn.client` speaks to it. The extra `serve` installs what it needs.
"""

from reyn.gateway.app import create_app
from reyn.gateway.site import Gateway

__all__ = ["Gateway", "create_app"]
