"""The sandbox's mesh: istiod programs the routes of a stock Envoy, a feed tells it where pods listen."""
