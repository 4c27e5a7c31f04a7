// kueue-judge admits workloads of generated cases with Kueue's own queues, cache and scheduler.
//
// One JSON case a line on standard input, one answer a line on standard output. A case is flavors, clusterQueues and
// localQueues, and steps that add workloads or end some that were admitted. After each, scheduling cycles run until some
// in a row change nothing.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
	_ "unsafe" // for linkname

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	qcache "sigs.k8s.io/kueue/pkg/cache/queue"
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/scheduler"
	"sigs.k8s.io/kueue/pkg/util/expectations"
	utiltesting "sigs.k8s.io/kueue/pkg/util/testing"
	"sigs.k8s.io/kueue/pkg/util/wait"
	"sigs.k8s.io/kueue/pkg/workload"
)

// Cycles in a row without a change after which none comes: pod sets may take turns at flavors for ever.
const idleCycles = 8

//go:linkname cycle sigs.k8s.io/kueue/pkg/scheduler.(*Scheduler).schedule
func cycle(*scheduler.Scheduler, context.Context) wait.SpeedSignal

type step struct {
	Add    []kueue.Workload `json:"add"`
	Finish []string         `json:"finish"`
}

type judged struct {
	Flavors       []kueue.ResourceFlavor `json:"flavors"`
	ClusterQueues []kueue.ClusterQueue   `json:"clusterQueues"`
	LocalQueues   []kueue.LocalQueue     `json:"localQueues"`
	Steps         []step                 `json:"steps"`
}

// What a step brought: the workloads of each cycle that admitted some, with the flavors of their pod sets, and what is
// said of those that wait.
type outcome struct {
	Admitted []map[string][]map[string]string `json:"admitted"`
	Pending  map[string]string                `json:"pending"`
}

func main() {
	ctrl.SetLogger(logr.Discard())
	// Workloads that ask alike are tried once.
	if err := utilfeature.DefaultMutableFeatureGate.Set("SchedulingEquivalenceHashing=true"); err != nil {
		panic(err)
	}
	in, out := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var one judged
		var answer any
		if err := json.Unmarshal(line, &one); err == nil {
			answer, err = judge(&one)
			if err != nil {
				answer = map[string]string{"broken": err.Error()}
			}
		} else {
			answer = map[string]string{"broken": err.Error()}
		}
		if err := out.Encode(answer); err != nil {
			panic(err)
		}
	}
}

func judge(one *judged) ([]outcome, error) {
	ctx, cancel := context.WithCancel(ctrl.LoggerInto(context.Background(), logr.Discard()))
	defer cancel()
	cl := utiltesting.NewClientBuilder().
		WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}).
		WithLists(&kueue.LocalQueueList{Items: one.LocalQueues}).
		WithStatusSubresource(&kueue.Workload{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: utiltesting.TreatSSAAsStrategicMerge}).
		Build()
	cache := schdcache.New(cl)
	expected := expectations.NewStore("judge")
	queues, requeuer := qcache.NewManagerForUnitTestsWithRequeuer(cl, cache, qcache.WithPreemptionExpectations(expected))
	for i := range one.LocalQueues {
		if err := queues.AddLocalQueue(ctx, &one.LocalQueues[i]); err != nil {
			return nil, err
		}
	}
	for i := range one.Flavors {
		cache.AddOrUpdateResourceFlavor(logr.Discard(), &one.Flavors[i])
	}
	for i := range one.ClusterQueues {
		queue := &one.ClusterQueues[i]
		if err := cache.AddClusterQueue(ctx, queue); err != nil {
			return nil, err
		}
		if err := queues.AddClusterQueue(ctx, queue); err != nil {
			return nil, err
		}
		if err := cl.Create(ctx, queue); err != nil {
			return nil, err
		}
	}
	judge := scheduler.New(queues, cache, cl, record.NewFakeRecorder(1<<16), scheduler.WithPreemptionExpectations(expected))
	var found []outcome
	there := map[string]bool{}
	for _, each := range one.Steps {
		for i := range each.Add {
			item := &each.Add[i]
			if err := cl.Create(ctx, item); err != nil {
				return nil, err
			}
			if err := queues.AddOrUpdateWorkload(logr.Discard(), item); err != nil {
				return nil, err
			}
		}
		for _, name := range each.Finish {
			if !there[name] {
				continue
			}
			reference := workload.NewReference("default", name)
			queues.QueueAssociatedInadmissibleWorkloadsAfter(ctx, reference, func() {
				_ = cache.DeleteWorkload(logr.Discard(), reference)
			})
			delete(there, name)
			if err := cl.Delete(ctx, &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}); err != nil {
				return nil, err
			}
		}
		requeuer.ProcessRequeues(ctx)
		step := outcome{Admitted: []map[string][]map[string]string{}, Pending: map[string]string{}}
		for before, idle := -1, 0; idle < idleCycles && len(queues.Dump()) > 0; {
			cycle(judge, ctx)
			now, err := admitted(ctx, cache, cl, there)
			if err != nil {
				return nil, err
			}
			active := 0
			for _, names := range queues.Dump() {
				active += len(names)
			}
			if len(now) > 0 {
				step.Admitted = append(step.Admitted, now)
			}
			idle++
			if len(now) > 0 || active != before {
				idle = 0
			}
			before = active
		}
		var all kueue.WorkloadList
		if err := cl.List(ctx, &all); err != nil {
			return nil, err
		}
		for _, item := range all.Items {
			if condition := meta.FindStatusCondition(item.Status.Conditions, kueue.WorkloadQuotaReserved); !there[item.Name] {
				step.Pending[item.Name] = ""
				if condition != nil {
					step.Pending[item.Name] = condition.Message
				}
			}
		}
		found = append(found, step)
	}
	return found, nil
}

// Return the workloads that were admitted since the last call, once their statuses say so.
func admitted(ctx context.Context, cache *schdcache.Cache, cl client.Client, there map[string]bool) (map[string][]map[string]string, error) {
	snapshot, err := cache.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string][]map[string]string{}
	for _, queue := range snapshot.ClusterQueues() {
		for _, item := range queue.Workloads {
			name := item.Obj.Name
			if there[name] {
				continue
			}
			there[name] = true
			for _, set := range item.Obj.Status.Admission.PodSetAssignments {
				flavors := map[string]string{}
				for resource, flavor := range set.Flavors {
					flavors[string(resource)] = string(flavor)
				}
				found[name] = append(found[name], flavors)
			}
			if err := written(ctx, cl, name); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

func written(ctx context.Context, cl client.Client, name string) error {
	for range 1000 {
		var item kueue.Workload
		if err := cl.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, &item); err != nil {
			return err
		}
		if workload.HasQuotaReservation(&item) {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("%s is admitted and its status does not say so", name)
}
