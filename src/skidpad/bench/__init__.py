"""Figures, each beside a calibration loop measured in the same process."""
