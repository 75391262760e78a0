"""What may the model say?

The graph becomes candidates, candidates become one schema, an answer becomes a verdict. Pure; touches nothing.
"""

from reyn.contract.candidates import Candidate, candidates_of
from reyn.contract.judge import Accepted, Acting, Contract, Rejected, Verdict
from reyn.contract.ops import offered_ops, with_kept_reads

__all__ = [
    "Accepted",
    "Acting",
    "Candidate",
    "Contract",
    "Rejected",
    "Verdict",
    "candidates_of",
    "offered_ops",
    "with_kept_reads",
]
