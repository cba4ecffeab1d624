package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/session/fault"
)

// The conversions are those that LangBot's models make of JSON: text of a
// number is a number, a whole number in floating point is a whole one, 1 is
// true. What they would not convert is refused here too.

// maxWhole bounds whole numbers to what floating point holds exactly.
const maxWhole = 1 << 53

func toInt(v any) (int, error) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, nil
		}
		return 0, nil
	case string:
		return textToInt(v)
	case json.Number:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return inRange(n)
		}
		f, err := v.Float64()
		if err != nil {
			return 0, errors.New("it is out of range")
		}
		return floatToInt(f)
	}
	switch r := reflect.ValueOf(v); {
	case !r.IsValid():
	case r.CanInt():
		return inRange(r.Int())
	case r.CanUint():
		return inRange(int64(min(r.Uint(), maxWhole+1)))
	case r.CanFloat():
		return floatToInt(r.Float())
	}
	return 0, wanted("a whole number", v)
}

func inRange(n int64) (int, error) {
	if n > maxWhole || n < -maxWhole {
		return 0, errors.New("it is out of range")
	}
	return int(n), nil
}

func floatToInt(f float64) (int, error) {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return 0, errors.New("a finite number is wanted")
	case f != math.Trunc(f):
		return 0, fmt.Errorf("a whole number is wanted, not %v", f)
	case math.Abs(f) > maxWhole:
		return 0, errors.New("it is out of range")
	}
	return int(f), nil
}

// textToInt reads " +1_000.00 ": blanks around, a sign, single underscores
// between digits, and a fraction of zeros.
func textToInt(s string) (int, error) {
	digits := strings.TrimSpace(s)
	if whole, fraction, ok := strings.Cut(digits, "."); ok {
		if fraction == "" || strings.Trim(fraction, "0") != "" {
			return 0, wanted("a whole number", s)
		}
		digits = whole
	}
	digits, ok := joinDigits(digits)
	if !ok {
		return 0, wanted("a whole number", s)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, errors.New("it is out of range")
	}
	if err != nil {
		return 0, wanted("a whole number", s)
	}
	return inRange(n)
}

// joinDigits takes out the underscores that each stand between two digits.
func joinDigits(s string) (string, bool) {
	isDigit := func(i int) bool { return i >= 0 && i < len(s) && s[i] >= '0' && s[i] <= '9' }
	var b strings.Builder
	for i := range len(s) {
		if s[i] != '_' {
			b.WriteByte(s[i])
		} else if !isDigit(i-1) || !isDigit(i+1) {
			return "", false
		}
	}
	return b.String(), true
}

func toFloat(v any) (float64, error) {
	var f float64
	switch v := v.(type) {
	case bool:
		if v {
			f = 1
		}
	case string:
		digits, ok := joinDigits(strings.TrimSpace(v))
		if !ok || strings.ContainsAny(digits, "xX") {
			return 0, wanted("a number", v)
		}
		n, err := strconv.ParseFloat(digits, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return 0, wanted("a number", v)
		}
		f = n
	case json.Number:
		n, err := v.Float64()
		if err != nil {
			return 0, errors.New("it is out of range")
		}
		f = n
	default:
		switch r := reflect.ValueOf(v); {
		case r.IsValid() && r.CanInt():
			f = float64(r.Int())
		case r.IsValid() && r.CanUint():
			f = float64(r.Uint())
		case r.IsValid() && r.CanFloat():
			f = r.Float()
		default:
			return 0, wanted("a number", v)
		}
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, errors.New("a finite number is wanted")
	}
	return f, nil
}

func toBool(v any) (bool, error) {
	switch v := v.(type) {
	case bool:
		return v, nil
	case string:
		switch strings.ToLower(v) {
		case "1", "true", "t", "yes", "y", "on":
			return true, nil
		case "0", "false", "f", "no", "n", "off":
			return false, nil
		}
	case nil:
	default:
		if f, err := toFloat(v); err == nil && (f == 0 || f == 1) {
			return f == 1, nil
		}
	}
	return false, wanted("true or false", v)
}

// toText takes text alone, which must be such.
func toText(v any) (string, error) {
	s, ok := v.(string)
	if !ok {
		r := reflect.ValueOf(v)
		if _, number := v.(json.Number); number || !r.IsValid() || r.Kind() != reflect.String {
			return "", wanted("text", v)
		}
		s = r.String()
	}
	if !utf8.ValidString(s) {
		return "", errors.New("it is not UTF-8")
	}
	return s, nil
}

// toScalar writes a number or a truth value as text, as the original's language
// does it, and takes text as it is.
func toScalar(v any) (string, error) {
	switch v := v.(type) {
	case bool:
		if v {
			return "True", nil
		}
		return "False", nil
	case json.Number:
		return string(v), nil
	}
	switch r := reflect.ValueOf(v); {
	case !r.IsValid():
	case r.CanInt():
		return strconv.FormatInt(r.Int(), 10), nil
	case r.CanUint():
		return strconv.FormatUint(r.Uint(), 10), nil
	case r.CanFloat():
		return strconv.FormatFloat(r.Float(), 'g', -1, 64), nil
	}
	return toText(v)
}

// wanted says what a field takes, and what it was given instead.
func wanted(what string, v any) error {
	switch v := v.(type) {
	case nil:
		return fmt.Errorf("%s is wanted, not null", what)
	case string:
		return fmt.Errorf("%s is wanted, not %q", what, fault.Cut(v))
	case bool, json.Number:
		return fmt.Errorf("%s is wanted, not %s", what, fault.Cut(fmt.Sprint(v)))
	}
	switch k := reflect.ValueOf(v).Kind(); k {
	case reflect.Map, reflect.Struct:
		return fmt.Errorf("%s is wanted, not an object", what)
	case reflect.Slice, reflect.Array:
		return fmt.Errorf("%s is wanted, not a list", what)
	default:
		return fmt.Errorf("%s is wanted, not %s", what, fault.Cut(fmt.Sprint(v)))
	}
}
