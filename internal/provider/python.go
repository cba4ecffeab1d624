package provider

import (
	"os"
	"path"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// runModule starts a script of a virtual environment's by an interpreter that does not
// know of that: the environment's own names its home by a path of this machine.
const runModule = `import runpy,site,sys; site.addsitedir(sys.argv[1]); sys.argv=sys.argv[2:]; runpy.run_path(sys.argv[0], run_name="__main__")`

// python is a script of a virtual environment, or one of the machine's own Python.
func (in *installer) python(real string) error {
	venv := filepath.Dir(filepath.Dir(real))
	if _, err := os.Stat(filepath.Join(venv, "pyvenv.cfg")); err != nil {
		if inImage(real) {
			in.out.Argv = []string{real}
			return nil
		}
		return sandbox.Errorf(sandbox.Invalid, "%s is not in a virtual environment, and what it imports can't be told", real).
			WithHint("uv tool install %s", in.p.Install.PyPI)
	}
	interpreter, err := filepath.EvalSymlinks(filepath.Join(venv, "bin/python"))
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "%s: its Python is not there: %w", venv, err)
	}
	sites, err := filepath.Glob(filepath.Join(venv, "lib/python3*/site-packages"))
	if err != nil || len(sites) != 1 {
		return sandbox.Errorf(sandbox.Invalid, "%s: its packages are not at lib/python3.*/site-packages", venv)
	}
	run := interpreter
	if !inImage(interpreter) {
		home := filepath.Dir(filepath.Dir(interpreter))
		if libs, err := filepath.Glob(filepath.Join(home, "lib/python3*/os.py")); err != nil || len(libs) == 0 {
			return sandbox.Errorf(sandbox.Invalid, "%s: no Python that could be shown", interpreter)
		}
		run = path.Join(in.mount(home, "runtime"), "bin", filepath.Base(interpreter))
	}
	guest := in.mount(venv, "venv")
	script, _ := below(venv, real)
	site, _ := below(venv, sites[0])
	in.out.Argv = []string{run, "-I", "-S", "-c", runModule, path.Join(guest, site), path.Join(guest, script)}
	return nil
}
