"""The targets by name. What they use is imported here, once, before any case is forked."""

from __future__ import annotations

import reyn.cli.app
import reyn.cli.commands.events
import reyn.cli.commands.frame
import reyn.cli.commands.import_
import reyn.cli.commands.runs
import reyn.cli.commands.show  # noqa: F401
from tests.fuzz import answers, archives, faults, servers, skills
from tests.fuzz.harness import Target

TARGETS: dict[str, Target] = {
    "answers": answers.target,
    "archives": archives.target,
    "skills": skills.target,
    "servers": servers.target,
    "faults": faults.target,
}
