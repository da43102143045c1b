"""Every number published about a driver."""
