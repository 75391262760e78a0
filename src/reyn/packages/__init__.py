"""Python environments with packages for the scripts and python steps of skills.

An operator declares them; a command of the user makes them from requirements with hashes; the sandbox shows them
read-only. A run uses an environment as it is, and never makes or changes one.
"""

from reyn.packages.declared import EnvironmentStatus, PackageEnvironments
from reyn.packages.making import lock_requirements, make_environment

__all__ = [
    "EnvironmentStatus",
    "PackageEnvironments",
    "lock_requirements",
    "make_environment",
]
