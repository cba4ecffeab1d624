package toolspec

import (
	"path"
	"strings"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const maxQuery = 128 // bytes of a query's ID

// Inbox returns where the attachments of a query are inside; root is the
// workspace, "" is /workspace.
func Inbox(root, queryID string) (string, error) { return queryDir(root, tools.InboxDir, queryID) }

// Outbox returns where an agent leaves what is for the user.
func Outbox(root, queryID string) (string, error) { return queryDir(root, tools.OutboxDir, queryID) }

func queryDir(root, dir, queryID string) (string, error) {
	if root == "" {
		root = tools.WorkspacePath
	}
	bad := strings.ContainsFunc(queryID, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && !strings.ContainsRune("._-", r)
	})
	if bad || queryID == "" || len(queryID) > maxQuery || queryID[0] == '.' {
		return "", sandbox.Errorf(sandbox.Invalid, "query_id %.40q: use 1 to %d letters, digits, dots, underscores and hyphens, with no dot first", queryID, maxQuery)
	}
	return path.Join(root, dir, queryID), nil
}

// Guidance returns what a model is to be told of a session's tools; with a
// query's ID also where files for the user go.
func Guidance(root, queryID string) (string, error) {
	if root == "" {
		root = tools.WorkspacePath
	}
	text := "You have a sandbox of your own. Use its tools rather than work things out in your head: exec for calculations, " +
		"for data and for code, and read, write, edit, glob and grep for files. Answer from what they give, and show a script " +
		"only where the user asks for one. Files that are to last are below " + root + "."
	if queryID == "" {
		return text, nil
	}
	dir, err := Outbox(root, queryID)
	if err != nil {
		return "", err
	}
	return text + " To send files to the user, put them into " + dir + "/ (make that directory first); " +
		"they are sent when your turn ends, so do not paste their content.", nil
}
