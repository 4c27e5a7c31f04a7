package main

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

type gangCase struct {
	Nodes     []*v1.Node                `json:"nodes"`
	Pending   []*v1.Pod                 `json:"pending"`
	PodGroups []*schedulingapi.PodGroup `json:"podGroups"`
}

type gangAnswer struct {
	Broken string `json:"broken,omitempty"`
	// Nodes has the node of each pod that was bound.
	Nodes map[string]string `json:"nodes"`
	// Messages has what PodScheduled says of each pod that was tried and not bound.
	Messages map[string]string `json:"messages"`
	// Groups has what PodGroupInitiallyScheduled says of each group that was tried.
	Groups map[string]string `json:"groups"`
}

// quiet is for how long nothing has to happen before a pod that was not tried counts as waiting.
const quiet = 3 * time.Second

// gangsAnswered runs the whole scheduler, with PodGroups on, until each pod is bound, refused or waits.
func gangsAnswered(line []byte) (found gangAnswer) {
	var given gangCase
	if err := json.Unmarshal(line, &given); err != nil {
		return gangAnswer{Broken: err.Error()}
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{"GenericWorkload": true}); err != nil {
		return gangAnswer{Broken: err.Error()}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var objects []runtime.Object
	for _, node := range given.Nodes {
		objects = append(objects, node)
	}
	for _, group := range given.PodGroups {
		objects = append(objects, group)
	}
	for _, pod := range given.Pending {
		corev1.SetObjectDefaults_Pod(pod)
		pod.UID = types.UID(pod.Namespace + "/" + pod.Name)
		pod.Spec.SchedulerName = v1.DefaultSchedulerName
		objects = append(objects, pod)
	}
	client := fake.NewClientset(objects...)
	var lock sync.Mutex
	bound := map[string]string{}
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		binding := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		lock.Lock()
		defer lock.Unlock()
		bound[binding.Name] = binding.Target.Name
		return true, binding, nil
	})
	factory := scheduler.NewInformerFactory(client, 0, nil)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	made, err := scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster))
	if err != nil {
		return gangAnswer{Broken: err.Error()}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := made.WaitForHandlersSync(ctx); err != nil {
		return gangAnswer{Broken: err.Error()}
	}
	go made.Run(ctx)
	changed, known := time.Now(), -1
	for {
		time.Sleep(20 * time.Millisecond)
		found = gangAnswer{Nodes: map[string]string{}, Messages: map[string]string{}, Groups: map[string]string{}}
		lock.Lock()
		for name, node := range bound {
			found.Nodes[name] = node
		}
		lock.Unlock()
		pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return gangAnswer{Broken: err.Error()}
		}
		for _, pod := range pods.Items {
			for _, each := range pod.Status.Conditions {
				if _, has := found.Nodes[pod.Name]; !has && each.Type == v1.PodScheduled {
					found.Messages[pod.Name] = each.Message
				}
			}
		}
		groups, err := client.SchedulingV1beta1().PodGroups("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return gangAnswer{Broken: err.Error()}
		}
		for _, group := range groups.Items {
			for _, each := range group.Status.Conditions {
				found.Groups[group.Name] = each.Message
			}
		}
		if now := len(found.Nodes) + len(found.Messages) + len(found.Groups); now != known {
			changed, known = time.Now(), now
		}
		settled := len(found.Nodes)+len(found.Messages) == len(given.Pending) && len(found.Groups) == len(given.PodGroups)
		if settled || time.Since(changed) > quiet {
			return found
		}
	}
}
