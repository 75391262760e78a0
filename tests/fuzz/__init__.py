"""Random hostile input against Reyn: answers, archives, skills, servers and system-call errors.

`python -m tests.fuzz` runs cases until its time is over and exits 1 if one of them found something. A case is
determined by its target and its seed and runs in a forked process with resource limits.
"""
