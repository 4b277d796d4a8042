"""Uploads over Tor: one circuit a report, onion services only. Why each option is set: docs/tor.md."""
