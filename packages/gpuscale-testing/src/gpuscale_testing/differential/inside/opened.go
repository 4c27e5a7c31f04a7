// Opens the controller to the differential test: a clock, the state between syncs, and one sync of one HPA.
// The build puts this file beside the controller's own files, whose clock it rewrites to clockNow().

package podautoscaler

import (
	"context"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	autoscalingclient "k8s.io/client-go/kubernetes/typed/autoscaling/v2"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	corelisters "k8s.io/client-go/listers/core/v1"
	scaleclient "k8s.io/client-go/scale"
	"k8s.io/client-go/tools/record"
	metricsclient "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/monitor"
)

// Clock is the time that the controller sees.
var Clock time.Time

func clockNow() time.Time { return Clock }

// Settings are the controller's flags.
type Settings struct {
	DownscaleStabilization  time.Duration
	Tolerance               float64
	CPUInitializationPeriod time.Duration
	InitialReadinessDelay   time.Duration
}

// Surroundings are all that the controller reaches.
type Surroundings struct {
	Scales  scaleclient.ScalesGetter
	HPAs    autoscalingclient.HorizontalPodAutoscalersGetter
	Mapper  apimeta.RESTMapper
	Metrics metricsclient.MetricsClient
	Events  record.EventRecorder
	HPAList autoscalinglisters.HorizontalPodAutoscalerLister
	PodList corelisters.PodLister
}

// Opened returns a controller without queues and informers.
func Opened(s Settings, around Surroundings) *HorizontalController {
	opened := &HorizontalController{
		scaleNamespacer:              around.Scales,
		hpaNamespacer:                around.HPAs,
		mapper:                       around.Mapper,
		tolerance:                    s.Tolerance,
		replicaCalc:                  NewReplicaCalculator(around.Metrics, around.PodList, s.CPUInitializationPeriod, s.InitialReadinessDelay),
		eventRecorder:                around.Events,
		downscaleStabilisationWindow: s.DownscaleStabilization,
		monitor:                      monitor.New(),
		hpaLister:                    around.HPAList,
		podLister:                    around.PodList,
		recommendations:              map[string][]timestampedRecommendation{},
		scaleUpEvents:                map[string][]timestampedScaleEvent{},
		scaleDownEvents:              map[string][]timestampedScaleEvent{},
	}
	opened.openStores()
	return opened
}

// Sync reconciles one HPA.
func (a *HorizontalController) Sync(key string) error {
	_, err := a.reconcileKey(context.Background(), key)
	return err
}

// Recommendations returns what is remembered of an HPA, as [replicas, milliseconds].
func (a *HorizontalController) Recommendations(key string) [][2]int64 {
	found := [][2]int64{}
	for _, each := range a.recommendations[key] {
		found = append(found, [2]int64{int64(each.recommendation), each.timestamp.UnixMilli()})
	}
	return found
}

// Changes returns the changes up, or down, that are remembered, as [change, milliseconds, outdated].
func (a *HorizontalController) Changes(key string, up bool) [][3]int64 {
	events, found := a.scaleDownEvents[key], [][3]int64{}
	if up {
		events = a.scaleUpEvents[key]
	}
	for _, each := range events {
		outdated := int64(0)
		if each.outdated {
			outdated = 1
		}
		found = append(found, [3]int64{int64(each.replicaChange), each.timestamp.UnixMilli(), outdated})
	}
	return found
}
