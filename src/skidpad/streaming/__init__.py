"""Sealed evaluation of streaming mappers: episodes, cameras, the mapper and its seal."""
