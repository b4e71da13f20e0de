//go:build tools

// Package adapter pins the prometheus-adapter that the sandbox runs when it is asked for metrics. It wants older
// Kubernetes libraries than the other servers, hence a module of its own.
package adapter

import (
	_ "sigs.k8s.io/prometheus-adapter/cmd/adapter"
)
