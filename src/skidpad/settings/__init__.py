"""Suites: files to checked, frozen settings with the origin of every value."""
