package bench

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// Contender is a library, or a way to load a transport, that is compared.
type Contender struct {
	Name string
	// Measure runs one collective over all sizes of a configuration and returns
	// the microseconds of the slowest rank by number of bytes.
	Measure func(ctx context.Context, c Config) (map[int64]float64, error)
}

// Comparison is one size of one collective of one world: the medians of all
// contenders' rounds.
type Comparison struct {
	World        int                `json:"world"`
	Collective   string             `json:"collective"`
	Bytes        int64              `json:"bytes"`
	Microseconds map[string]float64 `json:"us"` // by contender
}

// Ratio returns another contender's time over the reference's: above 1 the
// reference is faster. It is NaN where one of them has no time.
func (c *Comparison) Ratio(other, reference string) float64 {
	a, b := c.Microseconds[other], c.Microseconds[reference]
	if a <= 0 || b <= 0 {
		return math.NaN()
	}
	return a / b
}

// Contend measures all contenders in turn, round after round, so that what
// else happens on the machine happens to all of them, and returns the medians
// over the rounds. Progress is called before every measurement.
func Contend(ctx context.Context, contenders []Contender, worlds []int, collectives []string, c Config, rounds int,
	progress func(world int, collective, contender string, round int)) ([]Comparison, error) {
	var list []Comparison
	for _, world := range worlds {
		for _, collective := range collectives {
			c.World, c.Collectives = world, []string{collective}
			times := map[int64]map[string][]float64{} // by bytes and contender
			for round := range rounds {
				for _, contender := range contenders {
					progress(world, collective, contender.Name, round)
					measured, err := contender.Measure(ctx, c)
					if err != nil {
						return list, err
					}
					for bytes, us := range measured {
						if times[bytes] == nil {
							times[bytes] = map[string][]float64{}
						}
						times[bytes][contender.Name] = append(times[bytes][contender.Name], us)
					}
				}
			}
			list = append(list, medians(world, collective, times)...)
		}
	}
	return list, nil
}

func medians(world int, collective string, times map[int64]map[string][]float64) []Comparison {
	var list []Comparison
	for bytes, by := range times {
		c := Comparison{World: world, Collective: collective, Bytes: bytes, Microseconds: map[string]float64{}}
		for name, samples := range by {
			c.Microseconds[name] = median(samples)
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b Comparison) int { return cmp.Compare(a.Bytes, b.Bytes) })
	return list
}

// median returns the middle sample, or the mean of the two middle ones.
func median(samples []float64) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// percentile returns the smallest sample that the given percentage of samples does not exceed.
func percentile(samples []float64, percent int) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[(len(sorted)*percent+99)/100-1]
}

// GeometricMean of ratios; NaN for none. Those that are not numbers are left
// out.
func GeometricMean(ratios []float64) float64 {
	sum, n := 0.0, 0
	for _, r := range ratios {
		if !math.IsNaN(r) {
			sum += math.Log(r)
			n++
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return math.Exp(sum / float64(n))
}
