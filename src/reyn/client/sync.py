"""`SyncClient`: `Client` for synchronous code. The types are in `sync.pyi`."""

from reyn.client.remote import Client, RemoteConversations, RemoteProject, RemoteRuns
from reyn.runtime.sync_form import synchronous

SyncClient = synchronous(Client, "SyncClient", module=__name__)
SyncRemoteRuns = synchronous(RemoteRuns, "SyncRemoteRuns", module=__name__)
SyncRemoteProject = synchronous(RemoteProject, "SyncRemoteProject", module=__name__)
SyncRemoteConversations = synchronous(RemoteConversations, "SyncRemoteConversations", module=__name__)
