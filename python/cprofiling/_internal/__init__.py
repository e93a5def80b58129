"""Tools for every room, such as text, tables, arguments and files."""
