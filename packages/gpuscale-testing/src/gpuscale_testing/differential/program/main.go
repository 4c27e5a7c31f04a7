// Answers cases of the differential test: a line of JSON in, a line out.
//
// A case is an HPA's manifest and a sequence of syncs. The manifest goes through the API server's decoding,
// defaulting, conversion and validation, and each sync through the HPA controller's own reconcile.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"

	"gpuscale.dev/tools/kubernetes/podautoscaler"
)

type testCase struct {
	HPA      json.RawMessage `json:"hpa"`
	Settings settings        `json:"settings"`
	Status   json.RawMessage `json:"status"`
	Others   []other         `json:"others"`
	Syncs    []sync          `json:"syncs"`
}

type settings struct {
	DownscaleStabilizationS  int64   `json:"downscaleStabilizationS"`
	Tolerance                float64 `json:"tolerance"`
	CPUInitializationPeriodS int64   `json:"cpuInitializationPeriodS"`
	InitialReadinessDelayS   int64   `json:"initialReadinessDelayS"`
	ScaleToZero              bool    `json:"scaleToZero"`
}

type other struct {
	Key      string `json:"key"`
	Selector string `json:"selector"`
}

type sync struct {
	NowMs      int64                     `json:"nowMs"`
	Scale      scaleNumbers              `json:"scale"`
	ScaleError string                    `json:"scaleError"`
	WriteError string                    `json:"writeError"`
	Pods       []v1.Pod                  `json:"pods"`
	Resource   resourceAnswer            `json:"resource"`
	Custom     map[string]customAnswer   `json:"custom"`
	External   map[string]externalAnswer `json:"external"`
}

// scaleNumbers leaves out what stayed as the last sync wrote it.
type scaleNumbers struct {
	Spec     *int32 `json:"spec"`
	Status   *int32 `json:"status"`
	Selector string `json:"selector"`
}

type answer struct {
	Refused []string     `json:"refused,omitempty"`
	Broken  string       `json:"broken,omitempty"`
	Syncs   []syncAnswer `json:"syncs,omitempty"`
}

type syncAnswer struct {
	Written         *int32                       `json:"written"`
	Current         int32                        `json:"current"`
	Desired         int32                        `json:"desired"`
	LastScaleMs     *int64                       `json:"lastScaleMs"`
	Conditions      []conditionAnswer            `json:"conditions"`
	Events          [][3]string                  `json:"events"`
	Recommendations [][2]int64                   `json:"recommendations"`
	Ups             [][3]int64                   `json:"ups"`
	Downs           [][3]int64                   `json:"downs"`
	Metrics         []autoscalingv2.MetricStatus `json:"metrics"`
}

type conditionAnswer struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	SinceMs int64  `json:"sinceMs"`
}

func main() {
	klog.SetLogger(logr.Discard())
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 1 {
			text, failed := json.Marshal(answered(line))
			if failed != nil {
				text, _ = json.Marshal(answer{Broken: failed.Error()})
			}
			out.Write(append(text, '\n'))
			out.Flush()
		}
		if err != nil {
			return
		}
	}
}

func answered(line []byte) (result answer) {
	defer func() {
		if fault := recover(); fault != nil {
			result = answer{Broken: fmt.Sprint(fault)}
		}
	}()
	var asked testCase
	if err := json.Unmarshal(line, &asked); err != nil {
		return answer{Broken: err.Error()}
	}
	gate := fmt.Sprintf("HPAScaleToZero=%v", asked.Settings.ScaleToZero)
	if err := utilfeature.DefaultMutableFeatureGate.Set(gate); err != nil {
		return answer{Broken: err.Error()}
	}
	hpa, refused := admitted(asked.HPA)
	if refused != nil {
		return answer{Refused: refused}
	}
	if len(asked.Syncs) == 0 {
		return answer{}
	}
	if len(asked.Status) > 0 {
		if err := json.Unmarshal(asked.Status, &hpa.Status); err != nil {
			return answer{Broken: err.Error()}
		}
	}
	return reconciled(asked, hpa)
}

// admitted returns the HPA as an API server would store and serve it, or why it refuses it.
func admitted(manifest []byte) (*autoscalingv2.HorizontalPodAutoscaler, []string) {
	internal := schema.GroupVersion{Group: autoscaling.GroupName, Version: "__internal"}
	decoded, written, err := legacyscheme.Codecs.UniversalDecoder(internal).Decode(manifest, nil, nil)
	if err != nil {
		return nil, []string{err.Error()}
	}
	stored, ok := decoded.(*autoscaling.HorizontalPodAutoscaler)
	if !ok {
		return nil, []string{fmt.Sprintf("no HorizontalPodAutoscaler but a %T", decoded)}
	}
	if stored.Namespace == "" {
		stored.Namespace = "default"
	}
	ctx := genericapirequest.WithNamespace(genericapirequest.NewContext(), stored.Namespace)
	ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		Verb: "create", APIGroup: autoscaling.GroupName, APIVersion: written.Version, Resource: "horizontalpodautoscalers",
	})
	rest.FillObjectMetaSystemFields(stored)
	if err := rest.BeforeCreate(horizontalpodautoscaler.Strategy, ctx, stored); err != nil {
		return nil, []string{err.Error()}
	}
	served := &autoscalingv2.HorizontalPodAutoscaler{}
	if err := legacyscheme.Scheme.Convert(stored, served, nil); err != nil {
		return nil, []string{err.Error()}
	}
	// A server stores this version, and fills in what is missing again when it reads it.
	legacyscheme.Scheme.Default(served)
	return served, nil
}

func reconciled(asked testCase, hpa *autoscalingv2.HorizontalPodAutoscaler) answer {
	world := newWorld(hpa)
	seconds := func(count int64) time.Duration { return time.Duration(count) * time.Second }
	controller := podautoscaler.Opened(podautoscaler.Settings{
		DownscaleStabilization:  seconds(asked.Settings.DownscaleStabilizationS),
		Tolerance:               asked.Settings.Tolerance,
		CPUInitializationPeriod: seconds(asked.Settings.CPUInitializationPeriodS),
		InitialReadinessDelay:   seconds(asked.Settings.InitialReadinessDelayS),
	}, world.surroundings())
	key := hpa.Namespace + "/" + hpa.Name
	controller.Select(key, labels.Nothing())
	for _, each := range asked.Others {
		selector, err := labels.Parse(each.Selector)
		if err != nil {
			return answer{Broken: err.Error()}
		}
		controller.Select(each.Key, selector)
	}
	result := answer{}
	for _, each := range asked.Syncs {
		podautoscaler.Clock = time.UnixMilli(each.NowMs)
		world.begin(each)
		_ = controller.Sync(key)
		found := world.found()
		found.Recommendations = controller.Recommendations(key)
		found.Ups, found.Downs = controller.Changes(key, true), controller.Changes(key, false)
		result.Syncs = append(result.Syncs, found)
	}
	return result
}

func (w *world) found() syncAnswer {
	status := w.stored.Status
	found := syncAnswer{
		Written: w.written,
		Current: status.CurrentReplicas,
		Desired: status.DesiredReplicas,
		Events:  w.events,
		Metrics: status.CurrentMetrics,
	}
	if status.LastScaleTime != nil {
		moment := status.LastScaleTime.UnixMilli()
		found.LastScaleMs = &moment
	}
	for _, each := range status.Conditions {
		found.Conditions = append(found.Conditions, conditionAnswer{
			string(each.Type), string(each.Status), each.Reason, each.Message, milliseconds(each.LastTransitionTime),
		})
	}
	return found
}

func milliseconds(moment metav1.Time) int64 { return moment.UnixMilli() }
