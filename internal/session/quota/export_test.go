package quota

import "time"

// Due is pace.due for a scan that cost so much, so long ago, with so much room
// left in the tree, after the file system has lost so much space.
func Due(cost, since time.Duration, room, lost int64) bool {
	now := time.Now()
	p := pace{last: now.Add(-since), cost: cost, room: room, free: 1 << 30}
	return p.due(now, 1<<30-lost)
}
