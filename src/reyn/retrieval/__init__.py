"""Search indexes of documents: passages with their positions, vectors, and ranking by words and by vectors.

An index is kept in the journal's database, so that every worker sees it. Which files may be indexed or found is decided
by the caller, who has a gate; this package reads no file of a project.
"""

from reyn.retrieval.embedders import STATIC, Embedders
from reyn.retrieval.index import Found, Indexes, IndexOverview, SearchResult, WriteReport
from reyn.retrieval.passages import Passage, SourceDocument, convert_html, is_document, is_html, read_passages

__all__ = [
    "STATIC",
    "Embedders",
    "Found",
    "IndexOverview",
    "Indexes",
    "Passage",
    "SearchResult",
    "SourceDocument",
    "WriteReport",
    "convert_html",
    "is_document",
    "is_html",
    "read_passages",
]
