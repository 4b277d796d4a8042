"""Release: what may leave the aggregation service, and in which form."""
