"""Skidpad: a proving ground for driving models."""

__version__ = "0.1.0"
