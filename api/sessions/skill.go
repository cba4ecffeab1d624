package sessions

// Skill is a package of instructions and files that agents are taught from.
type Skill struct {
	Name          string `json:"name"`
	DisplayName   string `json:"display_name"`
	Description   string `json:"description"`
	Instructions  string `json:"instructions"`
	PackageRoot   string `json:"package_root"`   // a directory of the runtime's host
	EntryFile     string `json:"entry_file"`     // "SKILL.md" or "skill.md"
	PythonProject bool   `json:"python_project"` // it lists what it needs of Python, or has a .venv
	CreatedAt     string `json:"created_at"`     // RFC 3339, UTC
	UpdatedAt     string `json:"updated_at"`     // RFC 3339, UTC
	// SourcePath is where in an archive this one is, "" for its top; nil
	// unless the Skill comes from the preview of an archive.
	SourcePath *string `json:"source_path,omitempty"`
}

// SkillInput is what a skill is made of or changed by. What is nil was not
// given.
type SkillInput struct {
	Name         string  `json:"name"` // 1 to 64 letters, digits, - and _
	DisplayName  *string `json:"display_name,omitempty"`
	Description  *string `json:"description,omitempty"`
	Instructions *string `json:"instructions,omitempty"`
	// PackageRoot is a directory of the runtime's host that has the package;
	// "": a new one is made.
	PackageRoot string `json:"package_root,omitempty"`
}

// SkillRef names a skill.
type SkillRef struct {
	Name string `json:"name"`
}

// SkillFile is one entry of a skill's directory.
type SkillFile struct {
	Name  string `json:"name"`
	Path  string `json:"path"` // below the package
	IsDir bool   `json:"is_dir"`
	Size  *int64 `json:"size"` // nil for a directory
}

// SkillFiles is one directory of a skill.
type SkillFiles struct {
	Skill     SkillRef    `json:"skill"`
	BasePath  string      `json:"base_path"` // "." for the package itself
	Entries   []SkillFile `json:"entries"`
	Truncated bool        `json:"truncated"`
}

// SkillContent is one file of a skill.
type SkillContent struct {
	Skill   SkillRef `json:"skill"`
	Path    string   `json:"path"`
	Content string   `json:"content"`
}

// SkillWritten says what was written of a skill.
type SkillWritten struct {
	Skill        SkillRef `json:"skill"`
	Path         string   `json:"path"`
	BytesWritten int64    `json:"bytes_written"`
}

// SkillDeleted names the skill that was deleted.
type SkillDeleted struct {
	Deleted string `json:"deleted"`
}
