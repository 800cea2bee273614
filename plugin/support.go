package plugin

import (
	"math"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// AlgorithmLetters are the characters of an algorithm's name; it neither begins nor ends with a slash.
const AlgorithmLetters = "abcdefghijklmnopqrstuvwxyz0123456789_-.+/"

// Validate checks a result of Supports against the contract. Carriers take one
// that breaks it for no, and the conformance suite for a failed case.
func (s Support) Validate() error {
	if len(s.Algorithms) > MaxAlgorithms {
		return Errorf(Protocol, "it offers %d algorithms, want at most %d", len(s.Algorithms), MaxAlgorithms)
	}
	if len(s.Reason) > MaxText {
		return Errorf(Protocol, "the reason has %d bytes, want at most %d", len(s.Reason), MaxText)
	}
	if !printable(s.Reason) {
		return Errorf(Protocol, "reason %q is not printable UTF-8", s.Reason)
	}
	if len(s.Algorithms) == 0 && s.Reason == "" {
		return Errorf(Protocol, "neither algorithms nor a reason")
	}
	for i, a := range s.Algorithms {
		if a.Name == "" || len(a.Name) >= MaxName { // in C a zero ends it
			return Errorf(Protocol, "algorithm name of %d bytes, want 1 to %d", len(a.Name), MaxName-1)
		}
		if strings.Trim(a.Name, "/") != a.Name || strings.ContainsFunc(a.Name, func(r rune) bool {
			return !strings.ContainsRune(AlgorithmLetters, r)
		}) {
			return Errorf(Protocol, "algorithm name %q cannot stand in SHUNT_ALGO, want a-z, 0-9, _-.+, and / within it", a.Name)
		}
		if a.MinBytes < 0 || a.MaxBytes < 0 || (a.MaxBytes != 0 && a.MaxBytes < a.MinBytes) {
			return Errorf(Protocol, "algorithm %s: its limits are %d to %d bytes, want 0 or more in order", a.Name, a.MinBytes,
				a.MaxBytes)
		}
		if !(a.Latency >= 0) || math.IsInf(a.Latency, 0) || !(a.Bandwidth > 0) || math.IsInf(a.Bandwidth, 0) {
			return Errorf(Protocol, "algorithm %s: latency %v, bandwidth %v; want finite, not negative, and above 0", a.Name,
				a.Latency, a.Bandwidth)
		}
		if a.Numerics > NumericsOwn {
			return Errorf(Protocol, "algorithm %s: its numerics are %d, want at most %d", a.Name, a.Numerics, NumericsOwn)
		}
		for _, b := range s.Algorithms[:i] {
			if a.Name == b.Name {
				return Errorf(Protocol, "algorithm %s is named twice", a.Name)
			}
		}
	}
	return nil
}

// Opened returns what a transport's Open has returned. That there is neither an endpoint nor an error is one: of an
// endpoint that is nil every method would fail.
func Opened(e Endpoint, err error) (Endpoint, error) {
	if err != nil {
		return nil, err
	}
	if e == nil {
		return nil, Errorf(Protocol, "the transport's Open returned neither an endpoint nor an error")
	}
	if v := reflect.ValueOf(e); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, Errorf(Protocol, "the transport's Open returned a nil %T and no error", e)
	}
	return e, nil
}

// printable reports whether a text can go into logs and onto terminals as it is.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
