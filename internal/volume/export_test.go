package volume

import "time"

// ParseRecordForTest is parseRecord.
func ParseRecordForTest(b []byte, id string) (Volume, error) { return parseRecord(b, id) }

// ForTest is a Service that has a key, and nothing else.
func ForTest(key []byte) *Service {
	return &Service{key: key, o: Options{Now: func() time.Time { return time.Unix(1_800_000_000, 0) }}}
}

// GrantedForTest returns the volume that a token opens.
func (s *Service) GrantedForTest(token string) (string, bool) {
	g, ok := s.granted(token)
	return g.Volume, ok
}
