"""Ways for a sealed report to reach the aggregation service."""
