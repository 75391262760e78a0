"""Statistics of kills at random moments: `python -m tests.chaos --kills 2000`."""
