"""Operations on recorded runs: read, replay, verify, diff, fork, resume rules, questions, undo, export, import, prune.

Nothing here executes a run; `reyn.kernel` does.
"""
