package server_test

// lastOfAll are destructive: they come after the others, in this order.
var lastOfAll = []string{
	"POST /sandboxes/{id}/pause", "POST /v1/sandboxes/{id}/pause", "POST /sandboxes/{id}/resume",
	"POST /v1/sandboxes/{id}/stop", "POST /v1/sandboxes/{id}/start",
	"POST /templates/tags", "DELETE /templates/tags", "DELETE /templates/{id}/builds/{build}", "DELETE /templates/{id}",
	"DELETE /v1/snapshots/{id}", "DELETE /api-keys/{id}", "DELETE /secrets/{id}", "DELETE /v1/secrets/{name}", "DELETE /volumes/{id}",
}

// gone are second ways to delete what the others of lastOfAll have deleted.
var gone = []string{"DELETE /v1/volumes/{ref}", "DELETE /v1/keys/{id}"}
