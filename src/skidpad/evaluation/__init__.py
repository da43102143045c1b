"""Cases to rollouts to traces to metrics to records."""
