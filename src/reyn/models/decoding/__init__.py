"""Structured output: convert contracts to schemas that grammars and servers support.

`contract_schema` converts a contract, `narrowing` restricts its schemas, `patterns` rewrites regular expressions,
`subset` removes what a provider does not support.
Resolving references and merging `allOf` belong to `reyn.jsonschema`.
"""

from reyn.models.decoding.contract_schema import decoding_schema
from reyn.models.decoding.subset import ANTHROPIC, GEMINI, Inexpressible, to_subset

__all__ = ["ANTHROPIC", "GEMINI", "Inexpressible", "decoding_schema", "to_subset"]
