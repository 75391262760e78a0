"""Benchmarks: each target beside the value measured in this run. Not part of the test suite."""
