package boxservice

import (
	"cmp"
	"context"
	"slices"

	"github.com/carboy-sandbox/carboy/api/langbot"
)

type skillName struct {
	Name string `json:"name"`
}

type skillList struct {
	Skills []Skill `json:"skills"`
}

type oneSkill struct {
	Skill *Skill `json:"skill"`
}

// Skills lists the packages that the runtime has, the newest first.
func (c *Client) Skills(ctx context.Context) ([]Skill, error) {
	out, err := ask[skillList](ctx, c, langbot.ActionListSkills, none{})
	return out.Skills, err
}

// Skill returns one package; nil where there is none of that name.
func (c *Client) Skill(ctx context.Context, name string) (*Skill, error) {
	out, err := ask[oneSkill](ctx, c, langbot.ActionGetSkill, skillName{name})
	return out.Skill, err
}

// CreateSkill makes a package, or takes one up that PackageRoot names.
func (c *Client) CreateSkill(ctx context.Context, s SkillInput) (*Skill, error) {
	in := struct {
		Skill SkillInput `json:"skill"`
	}{s}
	out, err := ask[oneSkill](ctx, c, langbot.ActionCreateSkill, in)
	return out.Skill, err
}

// UpdateSkill changes the description and the instructions of a package.
func (c *Client) UpdateSkill(ctx context.Context, name string, s SkillInput) (*Skill, error) {
	in := struct {
		Name  string     `json:"name"`
		Skill SkillInput `json:"skill"`
	}{name, s}
	out, err := ask[oneSkill](ctx, c, langbot.ActionUpdateSkill, in)
	return out.Skill, err
}

// DeleteSkill removes a package with its files.
func (c *Client) DeleteSkill(ctx context.Context, name string) error {
	return c.call(ctx, callTime, langbot.ActionDeleteSkill, skillName{name}, nil)
}

// ScanSkill reads the package that is in a directory of the runtime's host.
func (c *Client) ScanSkill(ctx context.Context, path string) (Skill, error) {
	in := struct {
		Path string `json:"path"`
	}{path}
	return ask[Skill](ctx, c, langbot.ActionScanSkill, in)
}

// SkillFilesOptions say which entries of a package's directory are listed.
type SkillFilesOptions struct {
	Path       string // below the package; "": its top
	Hidden     bool   // those whose names begin with a dot, too
	MaxEntries int    // 0: 200
}

// SkillFiles lists a directory of a package.
func (c *Client) SkillFiles(ctx context.Context, name string, o SkillFilesOptions) (SkillFiles, error) {
	o.Path = cmp.Or(o.Path, ".")
	o.MaxEntries = cmp.Or(o.MaxEntries, 200)
	in := struct {
		Name       string `json:"name"`
		Path       string `json:"path"`
		Hidden     bool   `json:"include_hidden"`
		MaxEntries int    `json:"max_entries"`
	}{name, o.Path, o.Hidden, o.MaxEntries}
	return ask[SkillFiles](ctx, c, langbot.ActionSkillFiles, in)
}

// ReadSkill reads a file of a package, which is UTF-8.
func (c *Client) ReadSkill(ctx context.Context, name, path string) (SkillContent, error) {
	in := struct {
		Name string `json:"name"`
		Path string `json:"path"`
	}{name, path}
	return ask[SkillContent](ctx, c, langbot.ActionReadSkill, in)
}

// WriteSkill writes a file of a package.
func (c *Client) WriteSkill(ctx context.Context, name, path, content string) (SkillWritten, error) {
	in := struct {
		Name    string `json:"name"`
		Path    string `json:"path"`
		Content string `json:"content"`
	}{name, path, content}
	return ask[SkillWritten](ctx, c, langbot.ActionWriteSkill, in)
}

// Zip is an archive of packages.
type Zip struct {
	Content      []byte
	Filename     string   // from which names are made where the packages have none
	SourceSubdir string   // of the archive, in which to look; "": everywhere
	SourcePaths  []string // which of several packages to install; of an install alone
	TargetSuffix string   // of names that are made; "": "upload"
}

type zipBody struct {
	FileKey      string    `json:"file_key"`
	Filename     string    `json:"filename"`
	SourcePaths  *[]string `json:"source_paths,omitempty"`
	SourcePath   *string   `json:"source_path,omitempty"`
	SourceSubdir string    `json:"source_subdir"`
	TargetSuffix string    `json:"target_suffix"`
}

// PreviewZip reads the packages of an archive, and installs none.
func (c *Client) PreviewZip(ctx context.Context, z Zip) ([]Skill, error) {
	c, body, err := c.upload(ctx, z)
	if err != nil {
		return nil, err
	}
	var out skillList
	err = c.call(ctx, previewTime, langbot.ActionPreviewZip, body, &out)
	return out.Skills, err
}

// InstallZip installs the packages of an archive: all that are asked for, or
// none.
func (c *Client) InstallZip(ctx context.Context, z Zip) ([]Skill, error) {
	c, body, err := c.upload(ctx, z)
	if err != nil {
		return nil, err
	}
	paths := slices.Clone(z.SourcePaths)
	if paths == nil {
		paths = []string{}
	}
	body.SourcePaths, body.SourcePath = &paths, new(string)
	var out skillList
	err = c.call(ctx, installTime, langbot.ActionInstallZip, body, &out)
	return out.Skills, err
}

// upload sends the archive. What is to be done with it is for the same
// connection, which on its end forgets the file: the client that is returned
// stays with that one.
func (c *Client) upload(ctx context.Context, z Zip) (*Client, zipBody, error) {
	l, err := c.link()
	if err != nil {
		return nil, zipBody{}, err
	}
	sending, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	key, err := l.send(sending, z.Content, "zip")
	if err != nil {
		return nil, zipBody{}, err
	}
	same := *c
	same.link = func() (*link, error) { return l, nil }
	z.TargetSuffix = cmp.Or(z.TargetSuffix, "upload")
	return &same, zipBody{FileKey: key, Filename: z.Filename, SourceSubdir: z.SourceSubdir, TargetSuffix: z.TargetSuffix}, nil
}
