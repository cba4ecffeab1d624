package launch

// What the tests outside this package look at from inside.
var (
	ParseWorkspace = parseWorkspace
	ParseMount     = parseMount
	ParseEnvArg    = parseEnvArg
	ParseEnvFile   = parseEnvFile
	ParseLabel     = parseLabel
	IsImagePath    = isImagePath
	PathName       = pathName
	ArgvOf         = argvOf
	ParseIsolation = parseIsolation
)

type (
	WorkspaceArg = workspaceArg
	MountArg     = mountArg
)

// ParseSecret is what --secret makes of an argument.
func ParseSecret(s string) (name, env, file string, err error) {
	g, err := parseSecret(s)
	return g.name, g.env, g.file, err
}
