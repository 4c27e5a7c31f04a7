package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	autoscalingclient "k8s.io/client-go/kubernetes/typed/autoscaling/v2"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	corelisters "k8s.io/client-go/listers/core/v1"
	scaleclient "k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"
	metricsclient "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	customapi "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalapi "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	metricsapi "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	resourceclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
	customclient "k8s.io/metrics/pkg/client/custom_metrics"
	externalclient "k8s.io/metrics/pkg/client/external_metrics"

	"gpuscale.dev/tools/kubernetes/podautoscaler"
)

type resourceAnswer struct {
	Error string                  `json:"error"`
	Items []metricsapi.PodMetrics `json:"items"`
}

type customAnswer struct {
	Error string                  `json:"error"`
	Items []customapi.MetricValue `json:"items"`
}

type externalAnswer struct {
	Error string                            `json:"error"`
	Items []externalapi.ExternalMetricValue `json:"items"`
}

// world is the cluster as one HPA's controller sees it.
type world struct {
	stored *autoscalingv2.HorizontalPodAutoscaler
	hpas   cache.Indexer
	pods   cache.Indexer
	sync   sync
	// replicas and status are those of the target's scale.
	replicas int32
	status   int32
	written  *int32
	events   [][3]string
}

func newWorld(hpa *autoscalingv2.HorizontalPodAutoscaler) *world {
	byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	found := &world{
		hpas: cache.NewIndexer(cache.MetaNamespaceKeyFunc, byNamespace),
		pods: cache.NewIndexer(cache.MetaNamespaceKeyFunc, byNamespace),
	}
	found.store(hpa)
	return found
}

func (w *world) store(hpa *autoscalingv2.HorizontalPodAutoscaler) {
	w.stored = hpa
	_ = w.hpas.Add(hpa)
}

func (w *world) begin(next sync) {
	w.sync, w.written, w.events = next, nil, [][3]string{}
	if next.Scale.Spec != nil {
		w.replicas = *next.Scale.Spec
	}
	w.status = w.replicas
	if next.Scale.Status != nil {
		w.status = *next.Scale.Status
	}
	items := []interface{}{}
	for i := range next.Pods {
		items = append(items, &next.Pods[i])
	}
	_ = w.pods.Replace(items, "")
}

func (w *world) surroundings() podautoscaler.Surroundings {
	return podautoscaler.Surroundings{
		Scales:  scales{w},
		HPAs:    hpas{w},
		Mapper:  mapper{},
		Metrics: metricsclient.NewRESTMetricsClient(resourceMetrics{w}, customMetrics{w}, externalMetrics{w}),
		Events:  recorder{w},
		HPAList: autoscalinglisters.NewHorizontalPodAutoscalerLister(w.hpas),
		PodList: corelisters.NewPodLister(w.pods),
	}
}

type mapper struct{ apimeta.RESTMapper }

func (mapper) RESTMappings(kind schema.GroupKind, _ ...string) ([]*apimeta.RESTMapping, error) {
	resource := schema.GroupVersionResource{Group: kind.Group, Version: "v1", Resource: strings.ToLower(kind.Kind) + "s"}
	return []*apimeta.RESTMapping{{Resource: resource, GroupVersionKind: kind.WithVersion("v1")}}, nil
}

type scales struct{ w *world }

func (s scales) Scales(string) scaleclient.ScaleInterface { return scale{nil, s.w} }

type scale struct {
	scaleclient.ScaleInterface
	w *world
}

func (s scale) Get(_ context.Context, _ schema.GroupResource, name string, _ metav1.GetOptions) (*autoscalingv1.Scale, error) {
	if s.w.sync.ScaleError != "" {
		return nil, errors.New(s.w.sync.ScaleError)
	}
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.w.stored.Namespace},
		Spec:       autoscalingv1.ScaleSpec{Replicas: s.w.replicas},
		Status:     autoscalingv1.ScaleStatus{Replicas: s.w.status, Selector: s.w.sync.Scale.Selector},
	}, nil
}

func (s scale) Update(_ context.Context, _ schema.GroupResource, next *autoscalingv1.Scale, _ metav1.UpdateOptions) (*autoscalingv1.Scale, error) {
	if s.w.sync.WriteError != "" {
		return nil, errors.New(s.w.sync.WriteError)
	}
	replicas := next.Spec.Replicas
	s.w.written, s.w.replicas = &replicas, replicas
	return next, nil
}

type hpas struct{ w *world }

func (h hpas) HorizontalPodAutoscalers(string) autoscalingclient.HorizontalPodAutoscalerInterface {
	return hpaStatus{nil, h.w}
}

type hpaStatus struct {
	autoscalingclient.HorizontalPodAutoscalerInterface
	w *world
}

// UpdateStatus keeps the status alone: the controller fills in its own copy of the spec.
func (h hpaStatus) UpdateStatus(_ context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler, _ metav1.UpdateOptions) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	next := h.w.stored.DeepCopy()
	next.Status = *hpa.Status.DeepCopy()
	h.w.store(next)
	return next, nil
}

type recorder struct{ w *world }

func (r recorder) Event(_ runtime.Object, kind, reason, message string) {
	r.w.events = append(r.w.events, [3]string{kind, reason, message})
}

func (r recorder) Eventf(object runtime.Object, kind, reason, format string, args ...interface{}) {
	r.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

func (r recorder) AnnotatedEventf(object runtime.Object, _ map[string]string, kind, reason, format string, args ...interface{}) {
	r.Eventf(object, kind, reason, format, args...)
}

type resourceMetrics struct{ w *world }

func (r resourceMetrics) PodMetricses(string) resourceclient.PodMetricsInterface {
	return podMetrics{nil, r.w}
}

type podMetrics struct {
	resourceclient.PodMetricsInterface
	w *world
}

func (p podMetrics) List(context.Context, metav1.ListOptions) (*metricsapi.PodMetricsList, error) {
	given := p.w.sync.Resource
	if given.Error != "" {
		return nil, errors.New(given.Error)
	}
	return &metricsapi.PodMetricsList{Items: given.Items}, nil
}

type customMetrics struct{ w *world }

func (c customMetrics) RootScopedMetrics() customclient.MetricsInterface       { return c }
func (c customMetrics) NamespacedMetrics(string) customclient.MetricsInterface { return c }

func (c customMetrics) GetForObject(_ schema.GroupKind, _ string, name string, _ labels.Selector) (*customapi.MetricValue, error) {
	given := c.w.sync.Custom[name]
	if given.Error != "" {
		return nil, errors.New(given.Error)
	}
	return &given.Items[0], nil
}

func (c customMetrics) GetForObjects(_ schema.GroupKind, _ labels.Selector, name string, _ labels.Selector) (*customapi.MetricValueList, error) {
	given := c.w.sync.Custom[name]
	if given.Error != "" {
		return nil, errors.New(given.Error)
	}
	return &customapi.MetricValueList{Items: given.Items}, nil
}

type externalMetrics struct{ w *world }

func (e externalMetrics) NamespacedMetrics(string) externalclient.MetricsInterface { return e }

func (e externalMetrics) List(name string, _ labels.Selector) (*externalapi.ExternalMetricValueList, error) {
	given := e.w.sync.External[name]
	if given.Error != "" {
		return nil, errors.New(given.Error)
	}
	return &externalapi.ExternalMetricValueList{Items: given.Items}, nil
}
