"""Observations to actions, for a batch of agents."""
