"""`SyncClient`: `Client` for synchronous code. The types are in `sync.pyi`."""

from reyn.client.conversations import RemoteConversations
from reyn.client.project import RemotePermissions, RemoteProject, RemoteWorkers
from reyn.client.remote import Client
from reyn.client.runs import RemoteRuns
from reyn.runtime.sync_form import synchronous

SyncClient = synchronous(Client, "SyncClient", module=__name__)
SyncRemoteRuns = synchronous(RemoteRuns, "SyncRemoteRuns", module=__name__)
SyncRemoteProject = synchronous(RemoteProject, "SyncRemoteProject", module=__name__)
SyncRemotePermissions = synchronous(RemotePermissions, "SyncRemotePermissions", module=__name__)
SyncRemoteConversations = synchronous(RemoteConversations, "SyncRemoteConversations", module=__name__)
SyncRemoteWorkers = synchronous(RemoteWorkers, "SyncRemoteWorkers", module=__name__)
