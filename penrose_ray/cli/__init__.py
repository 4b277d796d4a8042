"""The `penrose` command."""
