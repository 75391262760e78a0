"""Python environments with packages for the scripts and python steps of skills.

An operator declares them; a command of the user makes them from requirements with hashes (`reyn.packages.making`); the
sandbox shows them read-only. A run uses an environment as it is, and never makes or changes one.
"""

from reyn.packages.declared import EnvironmentStatus, PackageEnvironment, PackageEnvironments
from reyn.packages.installation import installation_of_program

__all__ = [
    "EnvironmentStatus",
    "PackageEnvironment",
    "PackageEnvironments",
    "installation_of_program",
]
