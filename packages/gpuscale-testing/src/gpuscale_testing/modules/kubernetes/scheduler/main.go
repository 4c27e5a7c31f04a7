// Answers cases about placement with kube-scheduler's own plugins: a line of JSON in, a line out.
//
// A case is a scheduler's configuration, the objects of a cluster, and pods that come one after the other.
// Each pod goes through the filters and scores of the framework that the configuration makes, and then takes
// its room on the first of the best nodes, in the order of the case. Where none fits, the evaluator of
// DefaultPreemption looks for victims; they go, and the pod takes their place. Claims of a case are its pods' by
// name; those of a pod that is placed count as allocated from then on.
//
// With the argument gangs, cases have PodGroups and go to the whole scheduler (gangs.go).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	resourcev1 "k8s.io/kubernetes/pkg/apis/resource/v1"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/go-logr/logr"
)

type testCase struct {
	Configuration json.RawMessage                 `json:"configuration"`
	Nodes         []*v1.Node                      `json:"nodes"`
	Pods          []*v1.Pod                       `json:"pods"`
	Pending       []*v1.Pod                       `json:"pending"`
	Services      []*v1.Service                   `json:"services"`
	ReplicaSets   []*appsv1.ReplicaSet            `json:"replicaSets"`
	Budgets       []*policyv1.PodDisruptionBudget `json:"budgets"`
	Slices        []*resourceapi.ResourceSlice    `json:"slices"`
	Classes       []*resourceapi.DeviceClass      `json:"classes"`
	Claims        []*resourceapi.ResourceClaim    `json:"claims"`
}

type answer struct {
	Broken string      `json:"broken,omitempty"`
	Pods   []podAnswer `json:"pods,omitempty"`
}

type podAnswer struct {
	Best    []string                    `json:"best,omitempty"`
	Scores  map[string]map[string]int64 `json:"scores,omitempty"`
	Message string                      `json:"message,omitempty"`
	// Faults has why plugins could not judge the pod, on any node; one of them ends the attempt.
	Faults []string `json:"faults,omitempty"`
	// Allocated has all devices that claims have after the pod's turn.
	Allocated []string `json:"allocated,omitempty"`
	// Victims has the equally good choices, by node; ties are broken at random.
	Victims   map[string][]string `json:"victims,omitempty"`
	NoVictims string              `json:"noVictims,omitempty"`
}

// tries is how often SelectCandidate is asked, as it breaks ties by the order of a Go map.
const tries = 100

func main() {
	klog.SetLogger(logr.Discard())
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 1 {
			var text []byte
			if len(os.Args) > 1 && os.Args[1] == "gangs" {
				text, _ = json.Marshal(gangsAnswered(line))
			} else {
				found := answer{}
				if pods, failed := answered(line); failed != nil {
					found.Broken = failed.Error()
				} else {
					found.Pods = pods
				}
				text, _ = json.Marshal(found)
			}
			out.Write(append(text, '\n'))
			out.Flush()
		}
		if err != nil {
			return
		}
	}
}

func answered(line []byte) (found []podAnswer, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic: %v", fault)
		}
	}()
	var given testCase
	if err := json.Unmarshal(line, &given); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	judge, err := newJudge(ctx, &given)
	if err != nil {
		return nil, err
	}
	for _, pod := range given.Pending {
		each, err := judge.place(ctx, pod)
		if err != nil {
			return nil, err
		}
		found = append(found, each)
	}
	return found, nil
}

type judge struct {
	framework framework.Framework
	evaluator *preemption.Evaluator
	snapshot  *cache.Snapshot
	informers informers.SharedInformerFactory
	nodes     []*v1.Node
	pods      []*v1.Pod
	// hasClasses says that claims may be made for resources.
	hasClasses bool
}

func newJudge(ctx context.Context, given *testCase) (*judge, error) {
	configuration := &config.KubeSchedulerConfiguration{}
	text := given.Configuration
	if len(text) == 0 {
		text = []byte(`{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}`)
	}
	if err := runtime.DecodeInto(scheme.Codecs.UniversalDecoder(), text, configuration); err != nil {
		return nil, err
	}
	var objects []runtime.Object
	for _, each := range given.Services {
		objects = append(objects, each)
	}
	for _, each := range given.ReplicaSets {
		objects = append(objects, each)
	}
	for _, each := range given.Budgets {
		objects = append(objects, each)
	}
	for _, pods := range [][]*v1.Pod{given.Pods, given.Pending} {
		for _, pod := range pods {
			corev1.SetObjectDefaults_Pod(pod)
			pod.UID = types.UID(pod.Namespace + "/" + pod.Name)
		}
	}
	for _, each := range given.Slices {
		objects = append(objects, each)
	}
	for _, each := range given.Classes {
		objects = append(objects, each)
	}
	for _, each := range given.Claims {
		resourcev1.SetObjectDefaults_ResourceClaim(each)
		each.UID = types.UID(each.Namespace + "/" + each.Name)
		objects = append(objects, each)
	}
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	snapshot := cache.NewEmptySnapshot()
	made, err := scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithNodeInfoSnapshot(snapshot), scheduler.WithProfiles(configuration.Profiles...))
	if err != nil {
		return nil, err
	}
	found := made.Profiles[configuration.Profiles[0].SchedulerName]
	plugin, err := defaultpreemption.New(ctx,
		&config.DefaultPreemptionArgs{MinCandidateNodesPercentage: 10, MinCandidateNodesAbsolute: 100},
		found, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if len(given.Classes) > 0 {
		if err := made.WaitForHandlersSync(ctx); err != nil {
			return nil, err
		}
	}
	return &judge{found, plugin.Evaluator, snapshot, factory, given.Nodes, given.Pods, len(given.Classes) > 0}, nil
}

func (j *judge) place(ctx context.Context, pod *v1.Pod) (found podAnswer, err error) {
	*j.snapshot = *cache.NewSnapshot(j.pods, j.nodes)
	if len(j.nodes) == 0 {
		return podAnswer{Message: scheduler.ErrNoNodesAvailable.Error()}, nil
	}
	state := framework.NewCycleState()
	diagnosis := framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus()}
	result, status, plugins := j.framework.RunPreFilterPlugins(ctx, state, pod)
	var fitting []fwk.NodeInfo
	if !status.IsSuccess() {
		if !status.IsRejected() {
			return found, status.AsError()
		}
		diagnosis.NodeToStatus.SetAbsentNodesStatus(status)
		diagnosis.PreFilterMsg = status.Message()
	} else {
		if !result.AllNodes() {
			diagnosis.NodeToStatus.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
				fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", sorted(plugins.UnsortedList()))))
		}
		for _, node := range j.nodes {
			if !result.AllNodes() && !result.NodeNames.Has(node.Name) {
				continue
			}
			info, err := j.snapshot.Get(node.Name)
			if err != nil {
				return found, err
			}
			status := j.framework.RunFilterPluginsWithNominatedPods(ctx, state, pod, info)
			if status.Code() == fwk.Error {
				found.Faults = append(found.Faults, status.Message())
				continue
			}
			if status.IsSuccess() {
				fitting = append(fitting, info)
			} else {
				diagnosis.NodeToStatus.Set(node.Name, status)
			}
		}
	}
	if len(found.Faults) > 0 {
		return found, nil
	}
	if len(fitting) == 0 {
		refusal := &framework.FitError{Pod: pod, NumAllNodes: len(j.nodes), Diagnosis: diagnosis}
		return j.preempt(ctx, state, pod, diagnosis, refusal.Error())
	}
	if status := j.framework.RunPreScorePlugins(ctx, state, pod, fitting); !status.IsSuccess() {
		return found, status.AsError()
	}
	scores, status := j.framework.RunScorePlugins(ctx, state, pod, fitting)
	if !status.IsSuccess() {
		return found, status.AsError()
	}
	found.Scores = map[string]map[string]int64{}
	var most int64 = -1
	for _, each := range scores {
		found.Scores[each.Name] = map[string]int64{}
		for _, plugin := range each.Scores {
			found.Scores[each.Name][plugin.Name] = plugin.Score
		}
		if each.TotalScore > most {
			most, found.Best = each.TotalScore, nil
		}
		if each.TotalScore == most {
			found.Best = append(found.Best, each.Name)
		}
	}
	j.bind(pod, found.Best[0])
	if len(pod.Spec.ResourceClaims) == 0 && !j.hasClasses {
		return found, nil
	}
	if status := j.framework.RunReservePluginsReserve(ctx, state, pod, found.Best[0]); !status.IsSuccess() {
		return found, status.AsError()
	}
	allocated, err := j.framework.SharedDRAManager().ResourceClaims().ListAllAllocatedDevices()
	for each := range allocated {
		found.Allocated = append(found.Allocated, each.String())
	}
	sort.Strings(found.Allocated)
	return found, err
}

// preempt looks for victims as DefaultPreemption's evaluator does it, and lets the first choice happen.
func (j *judge) preempt(ctx context.Context, state fwk.CycleState, pod *v1.Pod, diagnosis framework.Diagnosis, message string) (podAnswer, error) {
	found := podAnswer{Message: message}
	if able, why := j.evaluator.PodEligibleToPreemptOthers(ctx, pod, nil); !able {
		found.NoVictims = why
		return found, nil
	}
	nodes, err := diagnosis.NodeToStatus.NodesForStatusCode(j.snapshot.NodeInfos(), fwk.Unschedulable)
	if err != nil {
		return found, err
	}
	var candidates []preemption.Candidate
	statuses := framework.NewDefaultNodeToStatus()
	if len(nodes) > 0 {
		budgets, err := j.evaluator.PdbLister.List(labels.Everything())
		if err != nil {
			return found, err
		}
		sort.Slice(budgets, func(a, b int) bool { return budgets[a].Name < budgets[b].Name })
		candidates, statuses, err = j.evaluator.DryRunPreemption(ctx, state, pod, nodes, budgets, 0, int32(len(nodes)))
		if err != nil {
			return found, err
		}
	}
	if len(candidates) == 0 {
		statuses.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "Preemption is not helpful for scheduling"))
		refusal := &framework.FitError{Pod: pod, NumAllNodes: len(j.nodes), Diagnosis: framework.Diagnosis{NodeToStatus: statuses}}
		found.NoVictims = refusal.Error()
		return found, nil
	}
	found.Victims = map[string][]string{}
	gone := map[string]map[types.UID]bool{}
	for range tries {
		choice := j.evaluator.SelectCandidate(ctx, candidates)
		if choice == nil {
			return found, errors.New("no candidate")
		}
		if _, known := found.Victims[choice.Name()]; known {
			continue
		}
		gone[choice.Name()] = map[types.UID]bool{}
		for _, victim := range choice.Victims().Pods {
			found.Victims[choice.Name()] = append(found.Victims[choice.Name()], victim.Name)
			gone[choice.Name()][victim.UID] = true
		}
		sort.Strings(found.Victims[choice.Name()])
	}
	for _, node := range j.nodes {
		if leaving, chosen := gone[node.Name]; chosen {
			var kept []*v1.Pod
			for _, each := range j.pods {
				if !leaving[each.UID] {
					kept = append(kept, each)
				}
			}
			j.pods = kept
			j.bind(pod, node.Name)
			break
		}
	}
	return found, nil
}

func (j *judge) bind(pod *v1.Pod, node string) {
	bound := pod.DeepCopy()
	bound.Spec.NodeName = node
	j.pods = append(j.pods, bound)
}

func sorted(names []string) []string {
	sort.Strings(names)
	return names
}
