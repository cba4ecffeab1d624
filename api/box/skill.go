package box

// Skill is a package of instructions and files that agents are taught from.
type Skill struct {
	Name         string  `json:"name"`
	DisplayName  string  `json:"display_name"`
	Description  string  `json:"description"`
	Instructions string  `json:"instructions"`
	PackageRoot  string  `json:"package_root"` // a directory of the runtime's host
	EntryFile    string  `json:"entry_file"`   // "SKILL.md"
	CreatedAt    string  `json:"created_at"`   // RFC 3339
	UpdatedAt    string  `json:"updated_at"`   // RFC 3339
	Python       *Python `json:"python_project,omitempty"`
	Path         string  `json:"path,omitempty"` // of one in an archive: where in it
}

// Python says what a skill has of a Python project.
type Python struct {
	Manifests []string `json:"manifests"`
	Venv      bool     `json:"venv"`
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
	Skill     Skill       `json:"skill"`
	BasePath  string      `json:"base_path"`
	Entries   []SkillFile `json:"entries"`
	Truncated bool        `json:"truncated"`
}

// SkillContent is one file of a skill.
type SkillContent struct {
	Skill   Skill  `json:"skill"`
	Path    string `json:"path"`
	Content string `json:"content"`
}
