"""`SyncRuntime`: `OSRuntime` for synchronous code. The types are in `sync_runtime.pyi`."""

from reyn.runs.recorded import Runs
from reyn.runs.watching import RunWatch
from reyn.runtime.conversations import Conversations
from reyn.runtime.os_runtime import OSRuntime
from reyn.runtime.project import Project
from reyn.runtime.run_stream import RunStream
from reyn.runtime.sync_form import synchronous

SyncRuntime = synchronous(OSRuntime, "SyncRuntime", module=__name__)
SyncRuns = synchronous(Runs, "SyncRuns", module=__name__)
SyncConversations = synchronous(Conversations, "SyncConversations", module=__name__)
SyncProject = synchronous(Project, "SyncProject", module=__name__)
SyncRunStream = synchronous(RunStream, "SyncRunStream", module=__name__)
SyncRunWatch = synchronous(RunWatch, "SyncRunWatch", module=__name__)
