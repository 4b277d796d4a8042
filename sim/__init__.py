"""Coverage models and fleet simulation. Nothing here needs Ray."""
