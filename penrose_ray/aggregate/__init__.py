"""Aggregation: reports in, sums under encryption out, nothing lost and nothing counted twice."""
