"""The ops `web_fetch` and `web_search`."""
