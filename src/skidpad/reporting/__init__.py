"""The pages of finished runs."""
