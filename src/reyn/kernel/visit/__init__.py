"""Visits: coroutines that emit events and await effects, and nothing else."""
