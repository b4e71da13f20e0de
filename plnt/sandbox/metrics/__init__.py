"""The sandbox's metrics: a stock Prometheus, prometheus-adapter, and the feed that plays the Prometheus operator."""
