"""The bridge between the Kubernetes API and Temporal."""
