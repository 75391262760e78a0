"""What may the model say?

The graph becomes candidates, candidates become one schema, an answer becomes a verdict. Pure; touches nothing.
"""

from reyn.contract.candidates import Candidate, candidates_of
from reyn.contract.judge import Contract
from reyn.contract.ops import offered_ops, with_truncated_reads
from reyn.contract.verdicts import Accepted, Acting, Rejected, Verdict

__all__ = [
    "Accepted",
    "Acting",
    "Candidate",
    "Contract",
    "Rejected",
    "Verdict",
    "candidates_of",
    "offered_ops",
    "with_truncated_reads",
]
