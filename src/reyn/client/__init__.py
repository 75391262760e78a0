"""A client of the HTTP server, with the method names of the runtime.

    with SyncClient.connect("http://127.0.0.1:8300", token) as rt:
        result = rt.run("hello", {"name": "Ada"})

`Client` is the asynchronous form. What reads a run is a coroutine there, because it asks the server. The extra `client`
installs what it needs.
"""

from reyn.client.conversations import RemoteConversations
from reyn.client.project import RemotePermissions, RemoteProject, RemoteWorkers
from reyn.client.remote import Client
from reyn.client.runs import RemoteRuns
from reyn.client.sync import SyncClient
from reyn.client.values import RemoteReply, Resource

__all__ = [
    "Client",
    "RemoteConversations",
    "RemotePermissions",
    "RemoteProject",
    "RemoteReply",
    "RemoteRuns",
    "RemoteWorkers",
    "Resource",
    "SyncClient",
]
