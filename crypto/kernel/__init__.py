"""Native arithmetic: eight Montgomery products at a time with AVX-512 IFMA, compiled at run time by llvmlite.

Used where the CPU has the instructions and llvmlite is installed; `PENROSE_NATIVE=0` switches it off.
Everything that it computes can be computed with gmpy2 alone, and is, elsewhere.
"""
