"""What may the model say?

The graph becomes candidates, candidates become one schema, an answer becomes a verdict. Pure; touches nothing.
"""

from reyn.contract.candidates import Candidate, candidates_of
from reyn.contract.judge import Accepted, Contract, Rejected, Verdict

__all__ = ["Accepted", "Candidate", "Contract", "Rejected", "Verdict", "candidates_of"]
