"""Benchmarks: BigSAP measured beside other solvers. ``python -m benchmarks`` runs them.

An *experiment* is a module of ``experiments`` with ``NAME``, ``TITLE``, ``run(settings, log)``,
which measures what the log does not hold yet, and ``render(log)``, which turns the log into tables
and texts; ``brief(log)``, where there is one, is the same for the short report. Other solvers are
imported by processes of their own only, when they are installed; none is a dependency.
"""
