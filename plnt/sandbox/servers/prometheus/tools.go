//go:build tools

// Package prometheus pins the Prometheus that the sandbox runs when it is asked for metrics.
package prometheus

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
)
