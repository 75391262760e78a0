"""The ops `web_fetch` and `web_search`."""

from reyn.ops.web.fetch import WebFetchOp
from reyn.ops.web.search import WebSearchOp

__all__ = ["WebFetchOp", "WebSearchOp"]
