"""The op `file`: read, write, edit, delete, find and search files."""

from reyn.ops.file.op import FileOp

__all__ = ["FileOp"]
