"""Benchmarks: measured, never asserted, and outside the default test run.

``run.py`` is the command. An *experiment* is a module with ``NAME``, ``TITLE``,
``run(settings, log)``, which measures what the log does not hold yet, and
``render(settings, log)``, which turns the log into Markdown.
"""
