"""`help(OSRuntime)` is readable."""

import pydoc

from reyn import OSRuntime, SyncRuntime


def test_the_help_of_the_runtimes_has_no_long_lines():
    for cls in (OSRuntime, SyncRuntime):
        lines = pydoc.plain(pydoc.render_doc(cls)).splitlines()
        assert max(len(line) for line in lines if "Method resolution" not in line) <= 420
