"""Real OpenCL programs that stand for the applications of a GPU's owner.

Three of different kinds: `train` (a neural network), `stencil` (a physics solver), `sort` (integer keys).
Each has a function `run`.
"""
