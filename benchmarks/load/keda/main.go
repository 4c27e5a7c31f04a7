// Command keda asks scalers as KEDA does, with KEDA's own scalers, and tells how long they took.
//
// It reads one JSON document of settings from standard input, writes a line when the calls begin to count, and
// a JSON document of results at the end. Polls and HPA queries of all ScaledObjects are due at even times,
// whatever the answers do; a call's time counts from when its poll or query was due. It is built in KEDA's
// module (go build -overlay), so that the scalers are those of KEDA.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kedacore/keda/v2/pkg/scalers"
	"github.com/kedacore/keda/v2/pkg/scalers/scalersconfig"
)

type settings struct {
	Kind          string              `json:"kind"` // external, external-push or prometheus
	ScaledObjects int                 `json:"scaled_objects"`
	Triggers      []map[string]string `json:"triggers"` // of each ScaledObject; NUMBER is replaced
	PollSeconds   float64             `json:"poll_seconds"`
	SyncSeconds   float64             `json:"sync_seconds"`
	WarmSeconds   float64             `json:"warm_seconds"`
	Seconds       float64             `json:"seconds"`
	AtOnce        int                 `json:"at_once"`
}

type results struct {
	Calls      int                `json:"calls"`
	Errors     map[string]int     `json:"errors"`
	Pushes     int64              `json:"pushes"`
	Unsent     int                `json:"unsent"`
	P50ms      map[string]float64 `json:"p50_ms"`
	P99ms      map[string]float64 `json:"p99_ms"`
	MaxMs      map[string]float64 `json:"max_ms"`
	CPUSeconds float64            `json:"cpu_seconds"`
	Sum        float64            `json:"sum"`
}

type asked struct {
	mu     sync.Mutex
	took   map[string][]float64
	errors map[string]int
	calls  int
	sum    float64
}

func (a *asked) add(what string, seconds float64, calls int, sum float64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls += calls
	a.sum += sum
	if err != nil {
		a.errors[err.Error()]++
		return
	}
	a.took[what] = append(a.took[what], seconds*1000)
}

func replaced(text string, number int) string {
	out := ""
	for i := 0; i < len(text); {
		if len(text)-i >= 6 && text[i:i+6] == "NUMBER" {
			out += fmt.Sprint(number)
			i += 6
			continue
		}
		out += text[i : i+1]
		i++
	}
	return out
}

func build(ctx context.Context, s settings, object, trigger int) (scalers.Scaler, error) {
	metadata := map[string]string{}
	for key, value := range s.Triggers[trigger] {
		metadata[key] = replaced(value, object)
	}
	config := &scalersconfig.ScalerConfig{
		ScalableObjectName:      fmt.Sprintf("object-%d", object),
		ScalableObjectNamespace: fmt.Sprintf("team-%d", object%20),
		ScalableObjectType:      "ScaledObject",
		TriggerMetadata:         metadata,
		TriggerIndex:            trigger,
		GlobalHTTPTimeout:       3 * time.Second,
		AuthParams:              map[string]string{},
	}
	switch s.Kind {
	case "prometheus":
		return scalers.NewPrometheusScaler(config)
	case "external-push":
		return scalers.NewExternalPushScaler(config)
	}
	return scalers.NewExternalScaler(config)
}

func main() {
	var s settings
	if err := json.NewDecoder(bufio.NewReader(os.Stdin)).Decode(&s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	all := make([][]scalers.Scaler, s.ScaledObjects)
	var pushes atomic.Int64
	for object := range all {
		for trigger := range s.Triggers {
			scaler, err := build(ctx, s, object, trigger)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(2)
			}
			all[object] = append(all[object], scaler)
			if push, ok := scaler.(scalers.PushScaler); ok {
				active := make(chan bool)
				go push.Run(ctx, active)
				go func() {
					for is := range active {
						if is {
							pushes.Add(1)
						}
					}
				}()
			}
		}
	}
	found := &asked{took: map[string][]float64{}, errors: map[string]int{}}
	var counting atomic.Bool
	places := make(chan struct{}, s.AtOnce)
	unsent := 0
	// One fetch: the spec, the value, the activity, as KEDA asks for a trigger; an HPA query asks all triggers
	// for their specs, to find the metric by its name.
	fetch := func(object, trigger int, isSync bool, due time.Time) {
		defer func() { <-places }()
		counts := counting.Load()
		// Of each trigger: KEDA's Prometheus scaler makes the spec itself, without a call.
		specs := all[object][trigger : trigger+1]
		if isSync {
			specs = all[object]
		}
		began := due
		name := ""
		for number, scaler := range specs {
			spec := scaler.GetMetricSpecForScaling(ctx)
			var err error
			if len(spec) != 1 {
				err = fmt.Errorf("no spec")
			} else if !isSync || number == trigger {
				name = spec[0].External.Metric.Name
			}
			if counts && s.Kind != "prometheus" {
				found.add("spec", time.Since(began).Seconds(), 1, 0, err)
			}
			began = time.Now()
		}
		values, _, err := all[object][trigger].GetMetricsAndActivity(ctx, name)
		sum := 0.0
		if err == nil && len(values) == 1 {
			sum = values[0].Value.AsApproximateFloat64()
		} else if err == nil {
			err = fmt.Errorf("%d values", len(values))
		}
		if counts {
			calls := 2
			if s.Kind == "prometheus" {
				calls = 1
			}
			found.add("value and activity", time.Since(began).Seconds(), calls, sum, err)
			found.add("fetch", time.Since(due).Seconds(), 0, 0, err)
		}
	}
	start := time.Now()
	type event struct {
		at      time.Duration
		object  int
		trigger int
		isSync  bool
	}
	end := time.Duration((s.WarmSeconds + s.Seconds) * float64(time.Second))
	var events []event
	for object := range all {
		for _, kind := range []struct {
			every  float64
			isSync bool
		}{{s.PollSeconds, false}, {s.SyncSeconds, true}} {
			first := kind.every * (float64(object) + 0.5) / float64(s.ScaledObjects)
			for at := first; ; at += kind.every {
				due := time.Duration(at * float64(time.Second))
				if due >= end {
					break
				}
				for trigger := range s.Triggers {
					events = append(events, event{due, object, trigger, kind.isSync})
				}
			}
		}
	}
	sort.SliceStable(events, func(i, j int) bool { return events[i].at < events[j].at })
	warm := time.Duration(s.WarmSeconds * float64(time.Second))
	var before syscall.Rusage
	for _, each := range events {
		due := start.Add(each.at)
		time.Sleep(time.Until(due))
		if !counting.Load() && each.at >= warm {
			counting.Store(true)
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
			fmt.Println("counting")
		}
		select {
		case places <- struct{}{}:
			go fetch(each.object, each.trigger, each.isSync, due)
		default:
			unsent++
		}
	}
	for range cap(places) {
		select {
		case places <- struct{}{}:
		case <-time.After(5 * time.Second):
		}
	}
	var after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	seconds := func(r syscall.Rusage) float64 {
		return float64(r.Utime.Sec+r.Stime.Sec) + float64(r.Utime.Usec+r.Stime.Usec)/1e6
	}
	out := results{
		Calls: found.calls, Errors: found.errors, Pushes: pushes.Load(), Unsent: unsent, Sum: found.sum,
		P50ms: map[string]float64{}, P99ms: map[string]float64{}, MaxMs: map[string]float64{},
		CPUSeconds: seconds(after) - seconds(before),
	}
	for what, took := range found.took {
		sort.Float64s(took)
		out.P50ms[what] = took[len(took)/2]
		out.P99ms[what] = took[len(took)*99/100]
		out.MaxMs[what] = took[len(took)-1]
	}
	_ = json.NewEncoder(os.Stdout).Encode(out)
}
