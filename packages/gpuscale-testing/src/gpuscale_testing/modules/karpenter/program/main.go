// Answers what Karpenter would do: one case per line in, one answer per line out.
//
// Scheduler, disruption methods and queue are those of the pinned release, with the instance types of its KWOK
// provider, over objects in memory and a clock that moves only while a command waits to be validated. What an
// API server and a kubelet would add to the objects is added here.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	kwokoptions "sigs.k8s.io/karpenter/kwok/options"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	nodeclaimdisruption "sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/controllers/state/informer"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/cost"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const nodeClass = "default"

type testCase struct {
	// In the form of the KWOK provider's file.
	InstanceTypes json.RawMessage
	// What can't be had, as type/zone/capacity type; the file can't say it.
	Unavailable []string
	Pools       []v1.NodePool
	Nodes       []node
	Pods        []corev1.Pod
	PDBs        []policyv1.PodDisruptionBudget
	DaemonSets  []appsv1.DaemonSet
}

type node struct {
	Name, Pool, Type, Zone, CapacityType string
	AgeS                                 int
	// Since it was initialized, or since the last pod came or went.
	IdleS         int
	Uninitialized bool
	Deleting      bool
	Labels        map[string]string
	Annotations   map[string]string
	Taints        []corev1.Taint
}

type claim struct {
	Pool          string   `json:"pool"`
	Types         []string `json:"types"`
	CapacityTypes []string `json:"capacityTypes"`
	Pods          []string `json:"pods"`
}

type command struct {
	Reason       string   `json:"reason"`
	Decision     string   `json:"decision"`
	Nodes        []string `json:"nodes"`
	Replacements []claim  `json:"replacements"`
}

type answer struct {
	Claims   []claim             `json:"claims"`
	Placed   map[string][]string `json:"placed"`
	Errors   map[string]string   `json:"errors"`
	Commands []command           `json:"commands"`
	// Why nodes are left alone: "node: reason: message".
	Events []string `json:"events"`
	Failed string   `json:"failed"`
}

type recorder struct {
	mu   sync.Mutex
	said []string
}

func (r *recorder) Publish(published ...events.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, each := range published {
		if object, err := meta.Accessor(each.InvolvedObject); err == nil {
			r.said = append(r.said, fmt.Sprintf("%s: %s: %s", object.GetName(), each.Reason, each.Message))
		}
	}
}

// What Karpenter has in memory about one case.
type world struct {
	client      client.Client
	clock       *clocktesting.FakeClock
	provider    *kwok.CloudProvider
	cluster     *state.Cluster
	recorder    *recorder
	provisioner *provisioning.Provisioner
	queue       *disruption.Queue
	cost        *cost.ClusterCost
}

func main() {
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Args = os.Args[:1]
	ctx := injection.WithOptionsOrDie(context.Background(), options.Injectables...)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<28)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var given testCase
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		must(out.Encode(judge(ctx, &given)))
	}
	must(lines.Err())
}

func judge(ctx context.Context, given *testCase) answer {
	its := instanceTypes(ctx, given)
	found := answer{Claims: []claim{}, Placed: map[string][]string{}, Errors: map[string]string{}, Commands: []command{}}

	bought := newWorld(ctx, given, its)
	results, err := bought.provisioner.Schedule(ctx)
	must(err)
	for _, each := range results.NewNodeClaims {
		found.Claims = append(found.Claims, claimOf(each))
	}
	for _, each := range results.ExistingNodes {
		if len(each.Pods) > 0 {
			found.Placed[each.Name()] = podNames(each.Pods)
		}
	}
	for pod, err := range results.PodErrors {
		found.Errors[pod.Name] = err.Error()
	}

	// In a world of its own: there no pod has been promised a node yet.
	removed := newWorld(ctx, given, its)
	removed.judgeClaims(ctx)
	controller := disruption.NewController(ctx, removed.clock, removed.client, removed.provisioner, removed.provider,
		removed.recorder, removed.cluster, removed.queue, removed.cost)
	stop := removed.moveClock()
	_, err = controller.Reconcile(ctx)
	stop()
	if err != nil {
		found.Failed = err.Error()
	}
	for _, each := range removed.queue.GetCommands() {
		done := command{Reason: string(each.Reason()), Decision: string(each.Decision()), Nodes: each.SourceNodeNames(), Replacements: []claim{}}
		slices.Sort(done.Nodes)
		for _, replacement := range each.Replacements {
			done.Replacements = append(done.Replacements, claimOf(replacement.NodeClaim))
		}
		found.Commands = append(found.Commands, done)
	}
	slices.Sort(removed.recorder.said)
	found.Events = append([]string{}, slices.Compact(removed.recorder.said)...)
	return found
}

func instanceTypes(ctx context.Context, given *testCase) []*cloudprovider.InstanceType {
	folder, err := os.MkdirTemp("", "karpenter-judge-")
	must(err)
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "types.json")
	must(os.WriteFile(path, given.InstanceTypes, 0o600))
	its, err := kwok.ConstructInstanceTypes(kwokoptions.ToContext(ctx, &kwokoptions.Options{InstanceTypesFilePath: path}))
	must(err)
	for _, each := range its {
		for _, offering := range each.Offerings {
			// The provider puts further labels on offerings; clouds have them on the type.
			for key, requirement := range offering.Requirements {
				if key != corev1.LabelTopologyZone && key != v1.CapacityTypeLabelKey {
					each.Requirements.Add(requirement)
					delete(offering.Requirements, key)
				}
			}
			offering.Available = !slices.Contains(given.Unavailable, each.Name+"/"+offering.Zone()+"/"+offering.CapacityType())
		}
	}
	return its
}

func newWorld(ctx context.Context, given *testCase, its []*cloudprovider.InstanceType) *world {
	w := &world{clock: clocktesting.NewFakeClock(start), recorder: &recorder{}}
	class := &v1alpha1.KWOKNodeClass{ObjectMeta: metav1.ObjectMeta{Name: nodeClass}}
	class.StatusConditions().SetTrue(status.ConditionReady)
	objects := []client.Object{class}
	pools := map[string]*v1.NodePool{}
	for i := range given.Pools {
		pool := completePool(given.Pools[i].DeepCopy())
		pools[pool.Name] = pool
		objects = append(objects, pool)
	}
	var nodes []*corev1.Node
	var claims []*v1.NodeClaim
	for _, each := range given.Nodes {
		machine, ordered := w.launched(each, pools[each.Pool], its)
		nodes, claims = append(nodes, machine), append(claims, ordered)
		objects = append(objects, machine, ordered)
	}
	var pods []*corev1.Pod
	for i := range given.Pods {
		pod := completePod(given.Pods[i].DeepCopy())
		pods = append(pods, pod)
		objects = append(objects, pod)
	}
	for i := range given.PDBs {
		objects = append(objects, given.PDBs[i].DeepCopy())
	}
	for i := range given.DaemonSets {
		objects = append(objects, given.DaemonSets[i].DeepCopy())
	}
	w.client = indexed(fake.NewClientBuilder().WithScheme(scheme.Scheme)).WithObjects(objects...).
		WithStatusSubresource(&v1.NodeClaim{}, &v1.NodePool{}).Build()
	w.provider = kwok.NewCloudProvider(ctx, w.client, its)
	w.cluster = state.NewCluster(w.clock, w.client, w.provider)
	w.cost = cost.NewClusterCost(ctx, w.provider, w.client)
	for i := range nodes {
		w.know(ctx, claims[i])
		must(w.cluster.UpdateNode(ctx, nodes[i]))
	}
	for _, pod := range pods {
		must(w.cluster.UpdatePod(ctx, pod))
	}
	devices := deviceallocation.NewController(w.client)
	devices.Hydrate(ctx)
	w.provisioner = provisioning.NewProvisioner(w.client, w.recorder, w.provider, w.cluster, w.clock, devices, virtualpods.NewVirtualPodCache(w.client))
	w.queue = disruption.NewQueue(w.client, w.recorder, w.cluster, w.clock, w.provisioner)
	return w
}

// indexed sets the indexes up that Karpenter's operator does.
func indexed(builder *fake.ClientBuilder) *fake.ClientBuilder {
	class := func(pick func(*v1.NodeClassReference) string) func(client.Object) []string {
		return func(o client.Object) []string {
			if pool, ok := o.(*v1.NodePool); ok {
				return []string{pick(pool.Spec.Template.Spec.NodeClassRef)}
			}
			return []string{pick(o.(*v1.NodeClaim).Spec.NodeClassRef)}
		}
	}
	for field, pick := range map[string]func(*v1.NodeClassReference) string{
		"group": func(r *v1.NodeClassReference) string { return r.Group },
		"kind":  func(r *v1.NodeClassReference) string { return r.Kind },
		"name":  func(r *v1.NodeClassReference) string { return r.Name },
	} {
		builder = builder.WithIndex(&v1.NodeClaim{}, "spec.nodeClassRef."+field, class(pick)).
			WithIndex(&v1.NodePool{}, "spec.template.spec.nodeClassRef."+field, class(pick))
	}
	return builder.
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&corev1.Node{}, "spec.providerID", func(o client.Object) []string { return []string{o.(*corev1.Node).Spec.ProviderID} }).
		WithIndex(&storagev1.VolumeAttachment{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*storagev1.VolumeAttachment).Spec.NodeName} }).
		WithIndex(&v1.NodeClaim{}, "status.providerID", func(o client.Object) []string { return []string{o.(*v1.NodeClaim).Status.ProviderID} })
}

// completePool adds the API server's defaults, and what Karpenter's own controllers would have found.
func completePool(pool *v1.NodePool) *v1.NodePool {
	pool.UID = types.UID(pool.Name)
	pool.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: nodeClass}
	if pool.Spec.Disruption.ConsolidationPolicy == "" {
		pool.Spec.Disruption.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmptyOrUnderutilized
	}
	if pool.Spec.Disruption.Budgets == nil {
		pool.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "10%"}}
	}
	pool.StatusConditions().SetTrue(v1.ConditionTypeValidationSucceeded)
	pool.StatusConditions().SetTrue(v1.ConditionTypeNodeClassReady)
	return pool
}

func completePod(pod *corev1.Pod) *corev1.Pod {
	pod.Namespace, pod.UID = "default", types.UID(pod.Name)
	pod.Status.Phase = corev1.PodRunning
	if pod.Spec.NodeName == "" {
		pod.Status.Phase = corev1.PodPending
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	}
	return pod
}

// launched returns a node and its claim as they stand some time after the launch.
func (w *world) launched(given node, pool *v1.NodePool, its []*cloudprovider.InstanceType) (*corev1.Node, *v1.NodeClaim) {
	it := its[slices.IndexFunc(its, func(it *cloudprovider.InstanceType) bool { return it.Name == given.Type })]
	labels := map[string]string{
		v1.NodePoolLabelKey: given.Pool, corev1.LabelTopologyZone: given.Zone, v1.CapacityTypeLabelKey: given.CapacityType,
		corev1.LabelHostname: given.Name, v1.NodeRegisteredLabelKey: "true",
	}
	for _, requirement := range it.Requirements {
		if _, set := labels[requirement.Key]; !set && requirement.Len() == 1 {
			labels[requirement.Key] = requirement.Any()
		}
	}
	for key, value := range pool.Spec.Template.Labels {
		labels[key] = value
	}
	for key, value := range given.Labels {
		labels[key] = value
	}
	if !given.Uninitialized {
		labels[v1.NodeInitializedLabelKey] = "true"
	}
	created := metav1.NewTime(start.Add(-time.Duration(given.AgeS) * time.Second))
	quiet := start.Add(-time.Duration(given.IdleS) * time.Second)
	about := metav1.ObjectMeta{Name: given.Name, UID: types.UID(given.Name), Labels: labels, Annotations: given.Annotations, CreationTimestamp: created}
	ordered := &v1.NodeClaim{ObjectMeta: *about.DeepCopy(), Spec: v1.NodeClaimSpec{
		NodeClassRef: pool.Spec.Template.Spec.NodeClassRef, Taints: pool.Spec.Template.Spec.Taints,
		StartupTaints: pool.Spec.Template.Spec.StartupTaints, ExpireAfter: pool.Spec.Template.Spec.ExpireAfter,
		TerminationGracePeriod: pool.Spec.Template.Spec.TerminationGracePeriod,
	}}
	provider := "kwok://" + given.Name
	ordered.Status = v1.NodeClaimStatus{NodeName: given.Name, ProviderID: provider, Capacity: it.Capacity, Allocatable: it.Allocatable()}
	at := status.WithClock(clocktesting.NewFakeClock(quiet))
	for _, condition := range []string{v1.ConditionTypeLaunched, v1.ConditionTypeRegistered, v1.ConditionTypeInitialized} {
		if condition != v1.ConditionTypeInitialized || !given.Uninitialized {
			ordered.StatusConditions(at).SetTrue(condition)
		}
	}
	if given.Deleting {
		ordered.DeletionTimestamp, ordered.Finalizers = &metav1.Time{Time: start}, []string{v1.TerminationFinalizer}
	}
	machine := &corev1.Node{ObjectMeta: about, Spec: corev1.NodeSpec{ProviderID: provider, Taints: append(slices.Clone(pool.Spec.Template.Spec.Taints), given.Taints...)}}
	machine.Status = corev1.NodeStatus{Capacity: it.Capacity, Allocatable: it.Allocatable(), Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}
	return machine, ordered
}

// know tells Karpenter's memory of a claim as its watches would.
func (w *world) know(ctx context.Context, nodeClaim *v1.NodeClaim) {
	watch := informer.NewNodeClaimController(w.client, w.provider, w.cluster, w.cost)
	_, err := watch.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: nodeClaim.Name}})
	must(err)
}

// judgeClaims finds out which nodes have drifted, and which have been quiet for long enough.
func (w *world) judgeClaims(ctx context.Context) {
	controller := nodeclaimdisruption.NewController(w.clock, w.client, w.provider)
	claims := &v1.NodeClaimList{}
	must(w.client.List(ctx, claims))
	for i := range claims.Items {
		// One after the other, so that none drifted at the same time as another.
		w.clock.Step(time.Second)
		_, err := controller.Reconcile(ctx, &claims.Items[i])
		must(err)
		w.know(ctx, &claims.Items[i])
		// 1.15.0 forgets what evictions cost when it hears of a claim, until it hears of the node.
		node := &corev1.Node{}
		must(w.client.Get(ctx, types.NamespacedName{Name: claims.Items[i].Name}, node))
		must(w.cluster.UpdateNode(ctx, node))
	}
}

// moveClock lets a command's validation pass until the returned function is called.
func (w *world) moveClock() func() {
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			case <-time.After(200 * time.Microsecond):
				if w.clock.HasWaiters() {
					w.clock.Step(15 * time.Second)
				}
			}
		}
	}()
	return func() { close(done); <-stopped }
}

func claimOf(nodeClaim *scheduling.NodeClaim) claim {
	made := claim{Pool: nodeClaim.NodePoolName, Types: []string{}, CapacityTypes: []string{}, Pods: podNames(nodeClaim.Pods)}
	for _, it := range nodeClaim.InstanceTypeOptions.OrderByPrice(nodeClaim.Requirements) {
		made.Types = append(made.Types, it.Name)
		for _, offering := range it.Offerings.Launchable().Compatible(nodeClaim.Requirements) {
			made.CapacityTypes = append(made.CapacityTypes, offering.CapacityType())
		}
	}
	slices.Sort(made.CapacityTypes)
	made.CapacityTypes = slices.Compact(made.CapacityTypes)
	return made
}

func podNames(pods []*corev1.Pod) []string {
	names := []string{}
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	slices.SortFunc(names, strings.Compare)
	return names
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
