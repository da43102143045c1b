"""Scenes being simulated, in batches."""
