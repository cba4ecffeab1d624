package manifest

import (
	_ "embed" // of the schema
	"slices"
)

// schema is made of the types, when it is tested: what makes it is not linked.
//
//go:embed schema.json
var schema []byte

// Schema is a JSON schema of what files say: of an object with bottles and agents, whose
// parts are those of one file each.
func Schema() []byte { return slices.Clone(schema) }
