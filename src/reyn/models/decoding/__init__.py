"""What can a decoder be held to? The contract of an answer becomes a schema that grammars and servers understand.

References lead to one table (`references`), what is said in parts is said in one (`flattening`), every text, list and
number is held (`narrowing`, `patterns`), and the ways to answer are put together (`contract_schema`).
"""

from reyn.models.decoding.contract_schema import decoding_schema

__all__ = ["decoding_schema"]
