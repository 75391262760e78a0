"""The output contract: which answers of the model are valid.

Candidates are derived from the graph, the answer schema from the candidates; `Contract.judge` returns a verdict on an
answer. The package is pure: it has no state and does no I/O.
"""

from reyn.contract.judge import Contract
from reyn.contract.ops import Duty, duties_of, limit_forms, limit_targets, offered_ops, with_truncated_reads
from reyn.contract.schema import artifact_branch, candidates_of, without_fields
from reyn.contract.verdicts import Accepted, Acting, Rejected
from reyn.models import Candidate

__all__ = [
    "Accepted",
    "Acting",
    "Candidate",
    "Contract",
    "Duty",
    "Rejected",
    "artifact_branch",
    "candidates_of",
    "duties_of",
    "limit_forms",
    "limit_targets",
    "offered_ops",
    "with_truncated_reads",
    "without_fields",
]
