"""How well snippets are recognised: data, measures and timings behind benchmarks.snippet."""
