"""Where independent pieces of work run: in this process, in others, or on a cluster."""
