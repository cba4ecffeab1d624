package term

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// sizeUnits are the suffixes of a size, in powers of 1024.
var sizeUnits = [...]struct {
	letter byte
	shift  uint
}{{'b', 0}, {'k', 10}, {'m', 20}, {'g', 30}, {'t', 40}}

// ParseSize reads a positive number of bytes: "512m", "1.5g", "1GiB",
// "1073741824". Units are powers of 1024, whatever they are called.
func ParseSize(s string) (int64, error) {
	bad := func() (int64, error) {
		return 0, fmt.Errorf("%q is not a size: use a number and one of k, m, g, t, such as 512m or 1.5g", s)
	}
	num := strings.ToLower(s)
	shift, ok := uint(0), false
	num, shift, ok = cutUnit(num)
	if !ok {
		return bad()
	}
	whole, frac, dotted := strings.Cut(num, ".")
	if !digits(whole) || dotted && !digits(frac) {
		return bad()
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is too large a size", s)
	}
	n <<= shift
	if dotted {
		f, err := strconv.ParseFloat("0."+frac, 64)
		if err != nil {
			return bad()
		}
		// f may round up to 1, and then n+1<<shift could overflow.
		more := int64(f * float64(int64(1)<<shift))
		if n > math.MaxInt64-more {
			return 0, fmt.Errorf("%q is too large a size", s)
		}
		n += more
	}
	if n <= 0 {
		return 0, fmt.Errorf("%q is not a size: it must be more than zero", s)
	}
	return n, nil
}

// cutUnit cuts a unit such as "m", "mb" or "mib" off a lower-case size.
func cutUnit(s string) (num string, shift uint, ok bool) {
	if s == "" {
		return "", 0, false
	}
	body := s
	for _, end := range []string{"ib", "b"} {
		if cut, found := strings.CutSuffix(s, end); found && cut != "" && !digit(cut[len(cut)-1]) {
			body = cut
			break
		}
	}
	last := body[len(body)-1]
	if digit(last) {
		return body, 0, true
	}
	for _, u := range sizeUnits {
		// "bb" and "bib" are no units.
		if u.letter == last && (u.letter != 'b' || body == s) {
			return body[:len(body)-1], u.shift, true
		}
	}
	return "", 0, false
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

// digits reports whether s is one or more decimal digits.
func digits(s string) bool {
	for i := range len(s) {
		if !digit(s[i]) {
			return false
		}
	}
	return s != ""
}

// FormatSize writes n bytes for a person: "1.5 GiB".
func FormatSize(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	f, i := float64(n)/1024, 0
	for f >= 1023.95 && i < len(units)-1 {
		f /= 1024
		i++
	}
	num := strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
	return num + " " + units[i:i+1] + "iB"
}
