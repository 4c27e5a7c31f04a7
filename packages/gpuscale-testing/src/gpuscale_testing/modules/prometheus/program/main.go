// Answers PromQL with Prometheus' own engine, over samples that it is given: what tests compare with.
//
// Each line that it reads is a JSON object, and each gets one line back, in order:
//
//	{"series": [{"labels": {...}, "samples": [[MILLISECONDS, VALUE], ...]}, ...]}    replaces all samples
//	{"query": TEXT, "start": MS, "end": MS, "step": MS}                              a range
//	{"query": TEXT, "start": MS}                                                     an instant
//
// Values are texts, in both directions: a number as Go's strconv reads it, or "stale" for the marker of a
// series' end. An answer is {"type": ..., "series": [{"labels": ..., "points": [[MS, VALUE], ...]}]}, where a
// scalar is one series without labels, or {"error": TEXT}.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

const (
	lookback     = 5 * time.Minute
	subqueryStep = time.Minute
)

type line struct {
	Series *[]given `json:"series"`
	Query  string   `json:"query"`
	Start  int64    `json:"start"`
	End    int64    `json:"end"`
	Step   int64    `json:"step"`
}

type given struct {
	Labels  map[string]string `json:"labels"`
	Samples []point           `json:"samples"`
}

type point struct {
	ms    int64
	value float64
}

func (p *point) UnmarshalJSON(text []byte) error {
	var number string
	if err := json.Unmarshal(text, &[]any{&p.ms, &number}); err != nil {
		return err
	}
	if number == "stale" {
		p.value = math.Float64frombits(value.StaleNaN)
		return nil
	}
	var err error
	p.value, err = strconv.ParseFloat(number, 64)
	return err
}

func (p point) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, `[%d,"%s"]`, p.ms, strconv.FormatFloat(p.value, 'g', -1, 64)), nil
}

// What storage asks of a sample.

func (p point) T() int64                      { return p.ms }
func (p point) ST() int64                     { return 0 }
func (p point) F() float64                    { return p.value }
func (p point) H() *histogram.Histogram       { return nil }
func (p point) FH() *histogram.FloatHistogram { return nil }
func (p point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample           { return p }

type answer struct {
	Type   string   `json:"type,omitempty"`
	Text   string   `json:"text,omitempty"`
	Series []series `json:"series"`
	Error  string   `json:"error,omitempty"`
}

type series struct {
	Labels labels.Labels `json:"labels"`
	Points []point       `json:"points"`
}

// samples is all series, sorted by labels; each query looks through all of them.
type samples []storage.Series

func (s samples) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: s.chosen}, nil
}

func (s samples) chosen(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &set{next: -1}
	for _, each := range s {
		if matches(each.Labels(), matchers) {
			found.series = append(found.series, each)
		}
	}
	return found
}

func matches(set labels.Labels, matchers []*labels.Matcher) bool {
	for _, matcher := range matchers {
		if !matcher.Matches(set.Get(matcher.Name)) {
			return false
		}
	}
	return true
}

type set struct {
	series []storage.Series
	next   int
}

func (s *set) Next() bool                        { s.next++; return s.next < len(s.series) }
func (s *set) At() storage.Series                { return s.series[s.next] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

func stored(all []given) samples {
	found := make(samples, 0, len(all))
	for _, each := range all {
		held := make([]chunks.Sample, len(each.Samples))
		for i, sample := range each.Samples {
			held[i] = sample
		}
		found = append(found, storage.NewListSeries(labels.FromMap(each.Labels), held))
	}
	sort.Slice(found, func(i, j int) bool {
		return labels.Compare(found[i].Labels(), found[j].Labels()) < 0
	})
	return found
}

func asked(engine *promql.Engine, from samples, ask line) answer {
	ctx := context.Background()
	var query promql.Query
	var err error
	start, end := time.UnixMilli(ask.Start), time.UnixMilli(ask.End)
	if ask.Step == 0 {
		query, err = engine.NewInstantQuery(ctx, from, nil, ask.Query, start)
	} else {
		step := time.Duration(ask.Step) * time.Millisecond
		query, err = engine.NewRangeQuery(ctx, from, nil, ask.Query, start, end, step)
	}
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer query.Close()
	result := query.Exec(ctx)
	if result.Err != nil {
		return answer{Error: result.Err.Error()}
	}
	return written(result.Value)
}

func written(found parser.Value) answer {
	told := answer{Type: string(found.Type()), Series: []series{}}
	switch found := found.(type) {
	case promql.Scalar:
		told.Series = append(told.Series, series{Points: []point{{found.T, found.V}}})
	case promql.String:
		told.Text = found.V
	case promql.Vector:
		for _, each := range found {
			told.Series = append(told.Series, series{each.Metric, []point{{each.T, each.F}}})
		}
	case promql.Matrix:
		for _, each := range found {
			points := make([]point, len(each.Floats))
			for i, sample := range each.Floats {
				points[i] = point{sample.T, sample.F}
			}
			told.Series = append(told.Series, series{each.Metric, points})
		}
	}
	return told
}

func main() {
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples:               50_000_000,
		Timeout:                  2 * time.Minute,
		LookbackDelta:            lookback,
		NoStepSubqueryIntervalFn: func(int64) int64 { return subqueryStep.Milliseconds() },
		EnableAtModifier:         true,
		EnableNegativeOffset:     true,
		Parser: parser.NewParser(parser.Options{
			EnableExperimentalFunctions: true,
			EnableBinopFillModifiers:    true,
		}),
	})
	in, out := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20)), bufio.NewWriter(os.Stdout)
	answers := json.NewEncoder(out)
	answers.SetEscapeHTML(false)
	var from samples
	for in.More() {
		var ask line
		told := answer{Type: "stored", Series: []series{}}
		err := in.Decode(&ask)
		switch {
		case err != nil:
		case ask.Series != nil:
			from = stored(*ask.Series)
		default:
			told = asked(engine, from, ask)
		}
		if err == nil {
			err = answers.Encode(told)
		}
		if err == nil {
			err = out.Flush()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "promql-engine:", err)
			os.Exit(1)
		}
	}
}
