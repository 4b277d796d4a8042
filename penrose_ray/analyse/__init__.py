"""Analysing: opened releases become frames, figures and a report.

Figures need the extra `analysis` (matplotlib); frames do not.
"""
