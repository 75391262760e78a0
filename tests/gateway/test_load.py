"""Runs that are watched while their server is killed: the short version of `make bench OF=bench.gateway`."""

from __future__ import annotations

import asyncio

import pytest

from bench.gateway import check, served, watched_under_kills

pytestmark = [pytest.mark.sockets, pytest.mark.slow]


def test_no_event_is_lost_or_doubled_when_the_server_is_killed():
    with served(visits=14) as server:
        streams = asyncio.run(watched_under_kills(server, runs=4, visits=14, kills=2))
        events = asyncio.run(check(server, streams))
    assert events >= 4 * 14 * 7
