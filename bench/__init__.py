"""Figures, not tests: each target beside what was measured in this run."""
