"""Benchmarks: measured, never asserted; ``python -m benchmarks`` is the command.

An *experiment* is a module with ``NAME``, ``TITLE``, ``run(settings, log)``, which measures
what the log does not hold yet, and ``render(settings, log)``, which turns the log into
Markdown. Pictures are drawn from the same log (``pictures``). The other solvers are imported
by processes of their own only, when they are installed; none is a dependency.
"""
