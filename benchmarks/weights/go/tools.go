//go:build tools

package peers

import _ "github.com/peak/s5cmd/v2"
