"""What a node call costs, measured side by side: plain Python and C, cprofiling, and its peers, in one run.

Run the folder: ``python python/benchmarks`` (or, from the root folder, ``python -m python.benchmarks``); ``--help``
lists the options. ``harness`` times, ``candidates`` and ``peers`` say what, ``extras`` measures summary, memory and
import, ``budgets`` judges, ``report`` prints, ``soak`` runs a service in trouble, ``pythons`` finds other interpreters.
"""
