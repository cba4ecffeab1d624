package docs

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

var update = flag.Bool("update", false, "write what is generated of docs/http-api.md anew")

// generated begins what is made of the sources; what stands above it is written by hand.
const generated = "\n<!-- From here on the sources say it: go test ./test/docs -run TestHTTPAPI -update -->\n"

// TestHTTPAPI holds the reference of the HTTP API to the paths that are served and to the
// fields of what goes over the wire.
func TestHTTPAPI(t *testing.T) {
	path := filepath.Join(root, "docs", "http-api.md")
	page := read(t, path)
	written, got, ok := strings.Cut(page, generated)
	if !ok {
		t.Fatalf("%s has no line %q", path, strings.TrimSpace(generated))
	}
	types := wireTypes(t)
	want := errorsText() + routesText(servedRoutes(t), types) + typesText(types)
	if *update {
		if err := os.WriteFile(path, []byte(written+generated+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("%s is not as the sources are (-sources +page); -update writes it:\n%s", path, d)
	}
}

// route is one path that is served.
type route struct{ pattern, scope string }

var routeLine = regexp.MustCompile(`(?m)^\t+\{"([A-Z]+ )?(/v1/[^"]+)", key\.(\w+), `)

// servedRoutes reads the tables of internal/server.
func servedRoutes(t *testing.T) (routes []route) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "internal", "server", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for _, m := range routeLine.FindAllStringSubmatch(read(t, file), -1) {
			routes = append(routes, route{cmp.Or(m[1], "any ") + strings.TrimSuffix(m[2], "?"), strings.ToLower(m[3])})
		}
	}
	if len(routes) < 90 {
		t.Fatalf("%d routes are not all", len(routes))
	}
	slices.SortStableFunc(routes, func(a, b route) int {
		_, x, _ := strings.Cut(a.pattern, " ")
		_, y, _ := strings.Cut(b.pattern, " ")
		return strings.Compare(x, y)
	})
	return routes
}

var (
	asksQuery = regexp.MustCompile(`(?m)^\t+\{"([A-Z]+ /v1/[^"]+)\?", key\.`)
	parameter = regexp.MustCompile(`(?:query|flag|imageRef)\(r, ((?:"\w+"(?:, )?)+)`)
)

// TestHTTPAPIQueries holds the table of queries to the paths that take one, and to the names
// that their handlers read.
func TestHTTPAPIQueries(t *testing.T) {
	page := read(t, filepath.Join(root, "docs", "http-api.md"))
	_, section, ok := strings.Cut(page, "\n## Queries\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !ok {
		t.Fatal("no table of queries")
	}
	files, err := filepath.Glob(filepath.Join(root, "internal", "server", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	paths, names := 0, 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text := read(t, file)
		for _, m := range asksQuery.FindAllStringSubmatch(text, -1) {
			if paths++; !strings.Contains(section, "| `"+m[1]+"` |") {
				t.Errorf("%s is not in the table of queries", m[1])
			}
		}
		for _, m := range parameter.FindAllStringSubmatch(text, -1) {
			for name := range strings.SplitSeq(m[1], ", ") {
				if names++; !strings.Contains(section, "`"+strings.Trim(name, `"`)) {
					t.Errorf("the parameter %s of %s is not in the table of queries", name, file)
				}
			}
		}
	}
	if rows := strings.Count(section, "\n| `"); paths < 15 || rows != paths || names < 25 {
		t.Errorf("%d rows, of %d paths with %d parameters", rows, paths, names)
	}
}

// wireType is a type of package api or of one below it.
type wireType struct {
	name, doc string
	fields    []wireField
}

type wireField struct{ name, typ, doc string }

// wireTypes reads the structs that JSON is made of, by their files and in their order.
func wireTypes(t *testing.T) (types []wireType) {
	t.Helper()
	for _, dir := range []string{"api", "api/action", "api/sessions", "api/tools"} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", dir, err)
		}
		prefix := ""
		if dir != "api" {
			prefix = filepath.Base(dir) + "."
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			tree, err := parser.ParseFile(gotoken.NewFileSet(), file, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			types = append(types, typesOf(tree, prefix)...)
		}
	}
	return types
}

func typesOf(tree *ast.File, prefix string) (types []wireType) {
	for _, d := range tree.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != gotoken.TYPE {
			continue
		}
		for _, s := range g.Specs {
			spec := s.(*ast.TypeSpec)
			st, ok := spec.Type.(*ast.StructType)
			if !ok || !spec.Name.IsExported() {
				continue
			}
			w := wireType{name: prefix + spec.Name.Name, doc: line(cmp.Or(spec.Doc, g.Doc).Text())}
			if w.fields = fieldsOf(st, prefix); len(w.fields) > 0 {
				types = append(types, w)
			}
		}
	}
	return types
}

// fieldsOf returns the fields that have a name in JSON, and what is embedded. What stands
// above several fields is said of the first.
func fieldsOf(st *ast.StructType, prefix string) (fields []wireField) {
	for _, f := range st.Fields.List {
		doc := line(strings.TrimSpace(f.Doc.Text() + " " + f.Comment.Text()))
		if len(f.Names) == 0 {
			fields = append(fields, wireField{name: "…", typ: typeText(f.Type, prefix), doc: cmp.Or(doc, "its fields")})
			continue
		}
		if f.Tag == nil {
			continue
		}
		tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json")
		name, more, _ := strings.Cut(tag, ",")
		if name == "" || name == "-" {
			continue
		}
		typ := typeText(f.Type, prefix)
		if strings.Contains(more, "omit") {
			typ += ", or absent"
		} else if mayBeNull(f.Type) {
			typ += ", or null"
		}
		fields = append(fields, wireField{"`" + name + "`", typ, doc})
	}
	return fields
}

// mayBeNull reports whether encoding/json writes null for a type's zero value.
func mayBeNull(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.StarExpr, *ast.ArrayType, *ast.MapType:
		return true
	case *ast.Ident:
		return e.Name == "any"
	}
	return false
}

// typeText is a type as JSON has it.
func typeText(e ast.Expr, prefix string) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeText(e.X, prefix)
	case *ast.ArrayType:
		return "list of " + typeText(e.Elt, prefix)
	case *ast.MapType:
		return "object of " + typeText(e.Value, prefix)
	case *ast.SelectorExpr:
		switch name := e.X.(*ast.Ident).Name + "." + e.Sel.Name; name {
		case "time.Time":
			return "time"
		case "json.RawMessage":
			return "JSON"
		default:
			return strings.TrimPrefix(name, "api.")
		}
	case *ast.Ident:
		switch {
		case e.IsExported():
			return prefix + e.Name
		case e.Name == "string" || e.Name == "bool" || e.Name == "any":
			return e.Name
		}
		return "number"
	}
	return "object"
}

// errorsText is the table of codes.
func errorsText() string {
	var b strings.Builder
	b.WriteString("\n## Errors\n\n| code | status |\n|---|---|\n")
	for _, k := range []sandbox.Kind{
		sandbox.Invalid, sandbox.NotFound, sandbox.Conflict, sandbox.Denied, sandbox.Unsupported, sandbox.Exhausted, sandbox.Unavailable, sandbox.Internal,
	} {
		fmt.Fprintf(&b, "| `%s` | %d |\n", k, wire.Status(k))
	}
	return b.String()
}

// line is a comment in one line, fit for a cell of a table.
func line(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(strings.Join(strings.Fields(text), " "))
}

// routesText is the table of paths, each with the types whose comments name it.
func routesText(routes []route, types []wireType) string {
	var b strings.Builder
	b.WriteString("\n## Paths\n\n| path | scope | types |\n|---|---|---|\n")
	for _, r := range routes {
		named := regexp.MustCompile(regexp.QuoteMeta(r.pattern) + `($|[^/{\w])`)
		var in []string
		for _, w := range types {
			if named.MatchString(w.doc) {
				in = append(in, "`"+w.name+"`")
			}
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", r.pattern, r.scope, strings.Join(in, ", "))
	}
	return b.String()
}

func typesText(types []wireType) string {
	var b strings.Builder
	b.WriteString("\n## Types\n")
	for _, w := range types {
		fmt.Fprintf(&b, "\n### `%s`\n\n%s\n\n| field | | |\n|---|---|---|\n", w.name, w.doc)
		for _, f := range w.fields {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", f.name, f.typ, f.doc)
		}
	}
	return b.String()
}
