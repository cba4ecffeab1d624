package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/template"
)

// Templates keeps the records of templates and their builds.
type Templates struct{ s *SQLite }

var _ template.Store = Templates{}

// Templates returns the part that template.Service works with.
func (s *SQLite) Templates() Templates { return Templates{s} }

// put writes one record as JSON, which is the query's last argument.
func (t Templates) put(ctx context.Context, doing, query string, record any, args ...any) error {
	b, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return t.s.write(ctx, t.s.records, false, doing, query, append(args, string(b))...)
}

// PutTemplate implements template.Store.
func (t Templates) PutTemplate(ctx context.Context, r template.Template) error {
	err := t.put(ctx, "write a template", `
		INSERT INTO templates (id, owner, name, record) VALUES (?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, name = excluded.name, record = excluded.record`,
		r, r.ID, r.Owner, r.Name)
	if code(err) == sqlite3.SQLITE_CONSTRAINT {
		return sandbox.Errorf(sandbox.Conflict, "template %s: the name is taken", r.Name).WithHint("choose another name")
	}
	return err
}

// Templates implements template.Store.
func (t Templates) Templates(ctx context.Context) ([]template.Template, error) {
	return records[template.Template](ctx, t.s, "read templates", `SELECT record FROM templates ORDER BY id`)
}

// records reads JSON, one to a row.
func records[T any](ctx context.Context, s *SQLite, doing, query string) ([]T, error) {
	return readRecords(ctx, s, doing, func(*T, sql.NullInt64) {}, `SELECT record, NULL FROM (`+query+`)`)
}

// DeleteTemplate implements template.Store.
func (t Templates) DeleteTemplate(ctx context.Context, id string) error {
	for _, query := range []string{
		`DELETE FROM template_tags WHERE template = ?`,
		`DELETE FROM builds WHERE template = ?`,
		`DELETE FROM templates WHERE id = ?`,
	} {
		if err := t.s.write(ctx, t.s.records, true, "delete a template", query, id); err != nil {
			return err
		}
	}
	return nil
}

// PutBuild implements template.Store.
func (t Templates) PutBuild(ctx context.Context, r template.Record) error {
	return t.put(ctx, "write a build", `
		INSERT INTO builds (id, template, record) VALUES (?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET record = excluded.record`, r, r.ID, r.Template)
}

// Builds implements template.Store.
func (t Templates) Builds(ctx context.Context) ([]template.Record, error) {
	return records[template.Record](ctx, t.s, "read builds", `SELECT record FROM builds ORDER BY id`)
}

// DeleteBuild implements template.Store.
func (t Templates) DeleteBuild(ctx context.Context, id string) error {
	return t.s.write(ctx, t.s.records, true, "delete a build", `DELETE FROM builds WHERE id = ?`, id)
}

// PutTag implements template.Store.
func (t Templates) PutTag(ctx context.Context, tag template.Tag) error {
	return t.s.write(ctx, t.s.records, false, "write a tag", `
		INSERT INTO template_tags (template, name, build, created_at) VALUES (?, ?, ?, ?)
		ON CONFLICT (template, name) DO UPDATE SET build = excluded.build, created_at = excluded.created_at`,
		tag.Template, tag.Name, tag.Build, tag.CreatedAt.UnixNano())
}

// DeleteTag implements template.Store.
func (t Templates) DeleteTag(ctx context.Context, id, name string) error {
	return t.s.write(ctx, t.s.records, true, "delete a tag", `DELETE FROM template_tags WHERE template = ? AND name = ?`, id, name)
}

// Tags implements template.Store.
func (t Templates) Tags(ctx context.Context) (_ []template.Tag, err error) {
	defer func() { err = explain(err, t.s.path, "read tags") }()
	rows, err := t.s.records.QueryContext(ctx, `SELECT template, name, build, created_at FROM template_tags ORDER BY template, name`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []template.Tag
	for rows.Next() {
		var tag template.Tag
		var at int64
		if err := rows.Scan(&tag.Template, &tag.Name, &tag.Build, &at); err != nil {
			return nil, err
		}
		tag.CreatedAt = time.Unix(0, at).UTC()
		out = append(out, tag)
	}
	return out, rows.Err()
}

// PutCached implements template.Store.
func (t Templates) PutCached(ctx context.Context, c template.Cached) error {
	return t.put(ctx, "write a cached step", `
		INSERT INTO template_cache (key, record) VALUES (?, ?)
		ON CONFLICT (key) DO UPDATE SET record = excluded.record`, c, c.Key)
}

// Cache implements template.Store.
func (t Templates) Cache(ctx context.Context) ([]template.Cached, error) {
	return records[template.Cached](ctx, t.s, "read cached steps", `SELECT record FROM template_cache ORDER BY key`)
}

// DeleteCached implements template.Store.
func (t Templates) DeleteCached(ctx context.Context, key string) error {
	return t.s.write(ctx, t.s.records, true, "delete a cached step", `DELETE FROM template_cache WHERE key = ?`, key)
}
