"""Adapters to the servers that plnt talks to; each turns foreign errors into plnt errors."""
