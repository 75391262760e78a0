"""Kills at random moments, in numbers: `python -m tests.chaos --kills 2000`."""
