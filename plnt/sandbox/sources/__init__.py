"""Sources of weights beside S3: a Google Cloud Storage double, a registry, a Hub; only when they are asked for."""
