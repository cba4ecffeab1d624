package planted

import "testing"

func TestPlanted(*testing.T) {}
