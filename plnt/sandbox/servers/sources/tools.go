//go:build tools

// Package sources pins the servers of weights that the sandbox runs beside the S3 one.
package sources

import (
	_ "github.com/distribution/distribution/v3/cmd/registry"
	_ "github.com/fsouza/fake-gcs-server"
)
