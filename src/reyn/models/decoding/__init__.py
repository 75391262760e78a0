"""Structured output: convert contracts to schemas that grammars and servers support.

`contract_schema` converts a contract, `narrowing` restricts its schemas, `patterns` rewrites regular expressions.
Resolving references and merging `allOf` belong to `reyn.jsonschema`.
"""

from reyn.models.decoding.contract_schema import decoding_schema

__all__ = ["decoding_schema"]
