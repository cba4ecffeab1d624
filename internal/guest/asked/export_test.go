package asked

// Parse is parse: the name with its type, and the answer.
func Parse(msg []byte) (string, []byte) {
	q, ok := parse(msg)
	if !ok {
		return "", nil
	}
	return q.name + " " + q.kind, q.answer
}
