"""The terminal side of `reyn chat`: reading what the user types, and printing what happens."""
