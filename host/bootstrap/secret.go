package bootstrap

import (
	"math"
	"strings"
	"sync"

	"golang.org/x/crypto/scrypt"
)

// A secret chosen by a person can be guessed from the store id that is derived from
// it, as fast as ids can be computed. With these parameters of scrypt each guess costs
// 16 MiB and about 50 ms.
const (
	scryptN = 1 << 14
	scryptR = 8
	scryptP = 1
)

var stretched struct {
	mu   sync.Mutex
	keys map[string][]byte // jobs of one process mostly have one secret
}

// stretch makes the key of a secret and a place expensive to guess.
func stretch(key []byte, salt storeID) []byte {
	stretched.mu.Lock()
	defer stretched.mu.Unlock()
	name := string(key) + string(salt[:])
	if known := stretched.keys[name]; known != nil {
		return known
	}
	made, err := scrypt.Key(key, salt[:], scryptN, scryptR, scryptP, len(secret{}))
	if err != nil {
		panic(err) // the parameters are constants
	}
	if stretched.keys == nil || len(stretched.keys) >= 16 {
		stretched.keys = map[string][]byte{}
	}
	stretched.keys[name] = made
	return made
}

// wantBits is the recommended strength of a secret.
const wantBits = 128

// atMostBits bounds the strength of a secret from above: as if its characters
// were chosen at random from the kinds of characters that it has.
func atMostBits(text string) float64 {
	alphabet := 0
	for _, kind := range []string{"0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"} {
		if strings.ContainsAny(text, kind) {
			alphabet += len(kind)
		}
	}
	if hex := strings.Trim(strings.ToLower(text), "0123456789abcdef"); hex == "" && alphabet > 10 {
		alphabet = 16
	}
	if strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' &&
			r <= 'Z')
	}) {
		alphabet += 33
	}
	distinct := map[rune]bool{}
	for _, r := range text {
		distinct[r] = true
	}
	if len(distinct) < 2 {
		return 0
	}
	return float64(len(text)) * math.Log2(float64(alphabet))
}
