"""Canonical digests, crash-safe files and strict weights: what everything else stores its results with."""
