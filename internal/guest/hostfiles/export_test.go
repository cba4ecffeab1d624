package hostfiles

// What tests look at.
var (
	Mapped       = mapped
	ParseCounter = parseCounter
)

// Look is one look.
func (w *Watch) Look() error {
	_, err := w.look()
	return err
}
