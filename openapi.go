// Package octopay holds what the whole project shares at its root: the contract of its
// HTTP interface. It decides nothing; package httpapi serves it.
package octopay

import _ "embed"

// OpenAPI is the HTTP contract, OpenAPI 3.1 in YAML.
//
//go:embed openapi.yaml
var OpenAPI []byte
