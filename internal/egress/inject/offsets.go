package inject

// offsets knows where in a stream the last bytes of a view of it came from: a
// view leaves out or shortens some of the stream. How far back will be asked
// for is said with each step, so that little has to be kept.
type offsets struct {
	view, raw int    // how much there was of both
	marks     []mark // from each on, until the next, both run alike
	full      int    // how many marks there may be before some are dropped
}

type mark struct{ view, raw int }

// run notes n bytes that are the same in both. No more than the last back
// bytes of the view will be asked for.
func (o *offsets) run(n, back int) { o.jump(n, n, back) }

// jump notes raw bytes of the stream that are view ones in the view.
func (o *offsets) jump(view, raw, back int) {
	if back > 0 && len(o.marks) == 0 {
		o.set()
	}
	o.view += view
	o.raw += raw
	switch {
	case back == 0:
		o.forget()
	case view != raw:
		o.set()
	}
	if len(o.marks) > o.full {
		o.trim(back)
	}
}

// forget says that nothing up to here will be asked for, and need not be noted.
func (o *offsets) forget() { o.marks = o.marks[:0] }

// set makes a mark here. One that is here in the view is moved: what follows
// begins here.
func (o *offsets) set() {
	if n := len(o.marks); n > 0 && o.marks[n-1].view == o.view {
		o.marks[n-1].raw = o.raw
		return
	}
	o.marks = append(o.marks, mark{o.view, o.raw})
}

func (o *offsets) trim(back int) {
	keep := 0
	for i, m := range o.marks {
		if m.view <= o.view-back {
			keep = i
		}
	}
	o.marks = o.marks[:copy(o.marks, o.marks[keep:])]
	o.full = max(32, 2*len(o.marks))
}

// since returns how many bytes of the stream the last n of the view span.
func (o *offsets) since(n int) int {
	start := o.view - n
	for i := len(o.marks) - 1; i >= 0; i-- {
		if m := o.marks[i]; m.view <= start {
			return o.raw - m.raw - (start - m.view)
		}
	}
	return n
}
