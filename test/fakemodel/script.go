package fakemodel

import (
	"encoding/json"
	"slices"
	"strings"
)

// Step is one turn of a model: exactly one of the fields.
type Step struct {
	Read string // a file, by a whole path
	Edit *Edit
	Run  string // a command line
	Say  string // the last words of a conversation
	// Hold is said in two parts, the second when Release is called: it begins
	// after the first line.
	Hold string
}

// Edit replaces a text of a file by another.
type Edit struct{ Path, Old, New string }

// Script says what to do after a prompt. A prompt within other words is none: that
// asks for a title, or whether it is dangerous.
type Script struct {
	Prompt string
	Steps  []Step
}

// chat is what the APIs have in common.
type chat struct {
	model  string
	stream bool
	tools  []string
	turns  []turn
}

// turn is something that a model is told: a user's words, or a tool's result.
type turn struct {
	result bool
	text   string
}

// tool is a call of one of a client's tools.
type tool struct {
	name   string
	input  map[string]any
	custom string // the whole of it, for OpenAI's tools of free form
}

// answer is what to say: words, or a call.
type answer struct {
	text string
	hold bool
	call *tool
	step int
}

// next finds the step that a conversation has come to: the one after as many as
// have had a result since the last prompt of a script.
func (c *chat) next(scripts []Script) answer {
	if len(c.tools) == 0 {
		return answer{text: "a title"} // what clients ask for beside the conversation
	}
	done := 0
	for _, t := range slices.Backward(c.turns) {
		if t.result {
			done++
			continue
		}
		i := slices.IndexFunc(scripts, func(s Script) bool { return strings.Trim(t.text, "\" \n") == s.Prompt })
		if i < 0 {
			continue
		}
		steps := scripts[i].Steps
		if done >= len(steps) {
			return answer{text: "nothing is left to do", step: done}
		}
		a := steps[done].answer(c)
		a.step = done
		return a
	}
	return answer{text: "no script is about that"}
}

func (s Step) answer(c *chat) answer {
	switch {
	case s.Say != "":
		return answer{text: s.Say}
	case s.Hold != "":
		return answer{text: s.Hold, hold: true}
	}
	call := s.call(c.tools)
	if call == nil {
		return answer{text: "no tool does that; there are " + strings.Join(c.tools, ", ")}
	}
	return answer{call: call}
}

// call makes a step into a call of a tool that the client has. The names are
// those of Claude Code, Codex, Gemini CLI and OpenCode.
func (s Step) call(tools []string) *tool {
	has := func(name string) bool { return slices.Contains(tools, name) }
	switch {
	case s.Read != "":
		for name, field := range map[string]string{"Read": "file_path", "read_file": "file_path", "read": "filePath"} {
			if has(name) {
				return &tool{name: name, input: map[string]any{field: s.Read}}
			}
		}
		return shell("cat '"+s.Read+"'", has)
	case s.Edit != nil:
		return s.Edit.call(has)
	}
	return shell(s.Run, has)
}

func (e *Edit) call(has func(string) bool) *tool {
	patch := "*** Begin Patch\n*** Update File: " + e.Path + "\n@@\n-" + e.Old + "\n+" + e.New + "\n*** End Patch\n"
	switch {
	case has("Edit"):
		return &tool{name: "Edit", input: map[string]any{"file_path": e.Path, "old_string": e.Old, "new_string": e.New}}
	case has("replace"):
		return &tool{name: "replace", input: map[string]any{
			"file_path": e.Path, "old_string": e.Old, "new_string": e.New, "instruction": "Replace " + e.Old + " by " + e.New,
		}}
	case has("edit"):
		return &tool{name: "edit", input: map[string]any{"filePath": e.Path, "oldString": e.Old, "newString": e.New}}
	case has("exec:custom"): // Codex's code mode: JavaScript that calls its tools
		return &tool{name: "exec", custom: "text(JSON.stringify(await tools.apply_patch(" + string(quoted(patch)) + ")));\n"}
	case has("apply_patch:custom"):
		return &tool{name: "apply_patch", custom: patch}
	case has("apply_patch"):
		return &tool{name: "apply_patch", input: map[string]any{"patchText": patch, "input": patch}}
	}
	return shell("apply_patch <<'END'\n"+patch+"END", has)
}

func shell(command string, has func(string) bool) *tool {
	const why = "as asked"
	switch {
	case has("Bash"):
		return &tool{name: "Bash", input: map[string]any{"command": command, "description": why}}
	case has("run_shell_command"):
		return &tool{name: "run_shell_command", input: map[string]any{"command": command, "description": why}}
	case has("bash"):
		return &tool{name: "bash", input: map[string]any{"command": command, "description": why}}
	case has("exec_command"):
		return &tool{name: "exec_command", input: map[string]any{"cmd": command}}
	case has("shell_command"):
		return &tool{name: "shell_command", input: map[string]any{"command": command}}
	case has("shell"):
		return &tool{name: "shell", input: map[string]any{"command": []string{"sh", "-c", command}}}
	case has("exec:custom"):
		return &tool{name: "exec", custom: "text(JSON.stringify(await tools.exec_command({cmd: " + string(quoted(command)) + "})));\n"}
	}
	return nil
}

// quoted is a JSON string, and so one of JavaScript's.
func quoted(s string) []byte {
	raw, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`) // no string is refused
	}
	return raw
}

// halves cuts a text in two: after its first line where it has several.
func halves(text string) (string, string) {
	at := len(text) / 2
	if end := strings.IndexByte(text, '\n'); end >= 0 {
		at = end + 1
	}
	return text[:at], text[at:]
}
