"""Where the custom resource definitions lie: `plnt/operators/crds`."""
