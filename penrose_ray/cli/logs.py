"""Where log records go: to stderr, without host and user names, paths and addresses."""

from __future__ import annotations

import logging
import sys


class ScrubbingHandler(logging.StreamHandler):  # type: ignore[type-arg]  # of whatever stderr is
    """Writes to stderr; what scrubs is made for the first record, so that a command starts without it."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text, scrubbed."""
        if self.formatter is None:
            from penrose_ray.capture.scrub import Scrubber, ScrubbingFormatter  # noqa: PLC0415 - see above

            self.setFormatter(ScrubbingFormatter(Scrubber.of_this_machine()))
        return super().format(record)


def scrub_logs() -> None:
    """Send the warnings and errors that libraries log to stderr, scrubbed; Python's own warnings too.

    What a command says to the person who called it, `output.say`, is no log and stays as it is.
    """
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, ScrubbingHandler):  # of an earlier command of this process
            root.removeHandler(handler)
    root.addHandler(ScrubbingHandler(sys.stderr))
    logging.captureWarnings(capture=True)
