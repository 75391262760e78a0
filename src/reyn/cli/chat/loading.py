"""Import the SDK of the model while the user writes the first message."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable


class SdkLoading:
    """Imports the SDK in a thread, so that the terminal reacts meanwhile.

    Args:
        load: Imports it. It is called in a thread.
    """

    def __init__(self, load: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._loaded = asyncio.Event()

        def work() -> None:
            try:
                load()
            finally:
                with suppress(RuntimeError):  # the loop is closed: the user has left
                    loop.call_soon_threadsafe(self._loaded.set)

        # A daemon, because leaving the conversation does not wait for it.
        threading.Thread(target=work, name="reyn-sdk", daemon=True).start()

    async def wait(self) -> None:
        """Wait until the SDK is imported; if it is not yet, print a line first."""
        if not self._loaded.is_set():
            click.echo("  connecting to the model ...")
            await self._loaded.wait()
