"""The evaluator types."""
