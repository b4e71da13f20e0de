"""Real servers, simulated GPU nodes and the processes of plnt, all on loopback."""
