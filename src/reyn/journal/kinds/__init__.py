"""Every event kind and its data. The docstrings are published in docs/reference/events.md."""

from reyn.journal.kinds.budget import *  # noqa: F403 - one namespace for the kinds of every module
from reyn.journal.kinds.children import *  # noqa: F403
from reyn.journal.kinds.conversation import *  # noqa: F403
from reyn.journal.kinds.graph import *  # noqa: F403
from reyn.journal.kinds.ops import *  # noqa: F403
from reyn.journal.kinds.run import *  # noqa: F403
from reyn.journal.kinds.shapes import *  # noqa: F403
from reyn.journal.kinds.visit import *  # noqa: F403
