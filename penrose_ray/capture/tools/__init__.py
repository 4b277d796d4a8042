"""Tools that say what a run did with its GPUs: kernels, operators, gaps, communication, memory.

A tool is a class with three hooks (`base.Tool`); `registry` finds tools by name, `session` shows every rank
of a run to several tools at once. Tools work where the trace is, for its owner: nothing of theirs is ever
reported.
"""
