"""Training drivers in the batched simulator."""
