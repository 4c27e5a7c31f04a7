// What the controller of 1.36 keeps of all HPAs.

package podautoscaler

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubernetes/pkg/controller/util/selectors"
)

func (a *HorizontalController) openStores() { a.hpaSelectors = selectors.NewBiMultimap() }

// Select registers an HPA, as its informer does, with the selector that it was last seen with.
func (a *HorizontalController) Select(key string, selector labels.Selector) {
	a.hpaSelectors.PutSelector(selectors.Parse(key), selector)
}
