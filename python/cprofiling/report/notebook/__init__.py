"""Tables and magics for notebooks."""
