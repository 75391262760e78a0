"""`SyncRuntime`: `OSRuntime` for synchronous code. The types are in `sync_runtime.pyi`."""

from reyn.runs.recorded import Runs
from reyn.runtime.os_runtime import OSRuntime, RunStream
from reyn.runtime.project import Project
from reyn.runtime.sync_form import synchronous

SyncRuntime = synchronous(OSRuntime, "SyncRuntime", module=__name__)
SyncRuns = synchronous(Runs, "SyncRuns", module=__name__)
SyncProject = synchronous(Project, "SyncProject", module=__name__)
SyncRunStream = synchronous(RunStream, "SyncRunStream", module=__name__)
