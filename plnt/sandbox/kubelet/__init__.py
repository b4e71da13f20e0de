"""The kubelet stand-in: simulated GPU nodes whose pods run as local processes."""
