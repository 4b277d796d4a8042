"""Commands, called in this process."""

from cli.conftest import call

__all__ = ["call"]
