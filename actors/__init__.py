"""Thin Ray shells around the stages, and the one topology that joins them."""
