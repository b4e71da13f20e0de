"""Workflows of plnt: deterministic, without any client library."""
