"""Places where independent pieces of work run."""
