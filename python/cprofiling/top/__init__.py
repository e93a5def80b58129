"""The command ``top``: statistics of another process while it runs, from its live file or its server."""
