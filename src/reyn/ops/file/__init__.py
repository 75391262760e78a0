"""The op `file`: read, write, edit, delete, find and search files."""
