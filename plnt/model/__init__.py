"""Decisions and data of plnt as plain functions and frozen models; no input or output."""
