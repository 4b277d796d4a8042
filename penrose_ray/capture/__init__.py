"""From running programs and trace files to one columnar stream of kernel launches.

`source.EventSource` is what every back end offers, `events.EventBatch` what it delivers. No column holds a
pointer, an argument, a shape or the contents of memory: what is not captured cannot leak.
"""
