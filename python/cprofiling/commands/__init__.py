"""The command line, a module per subcommand."""
