"""Small tools that every room may use: text, tables, arguments, files, processes."""
