"""Activities of plnt, one module per subject, one process per pool."""
