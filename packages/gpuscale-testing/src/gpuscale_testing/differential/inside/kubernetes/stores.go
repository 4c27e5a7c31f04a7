// What the controller keeps of all HPAs, with its feature gates as they are released.

package podautoscaler

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
	"k8s.io/kubernetes/pkg/controller/util/selectors"
)

// openStores leaves out what waits for the informer to have seen a status that was written: there is none.
func (a *HorizontalController) openStores() {
	a.selectorTracker = newHPASelectorStore()
	a.consistencyStore = consistency.NewNoopConsistencyStore()
}

// Select registers an HPA, as its informer does, with the selector that it was last seen with.
func (a *HorizontalController) Select(key string, selector labels.Selector) {
	parsed := selectors.Parse(key)
	a.selectorTracker.PutIfAbsent(parsed.Namespace, parsed, selector)
}
