"""Karpenter as a node policy: what it buys, replaces and removes, and why it leaves the rest alone.

It follows Karpenter 1.15.0, whose own code judges it in generated cases (`make test-nodes`). Not copied, or
otherwise than there:

- Pods have no volumes, host ports and resource claims here. Of namespaces a term sees the name alone.
- Of domains that are equally good for a topology spread, or for the first of pods that are to be near each
  other, Karpenter takes any; here the first by name is taken. New nodes have the zones and capacity types of
  all instance types of all pools, as far as their own pool allows them.
- Requirements have no `minValues`; pools have no `replicas`, no `terminationGracePeriod`, no overlays.
- Reserved offerings are taken first, and counted by type and offering; a claim that loses them to another is
  not packed again.
- A pool's `max_nodes`, which Karpenter does not know, bounds all that is bought; `min_nodes` does nothing.
- What is behind gates that are off: node repair, capacity buffers, static capacity, terminate-first.
- Where candidates, or claims beyond a dozen, are equal, Karpenter's choice is left to chance or to its sort;
  here the name, or who came first, decides.
- A search over single nodes ends after so many pods instead of after 3 minutes.
- What evicting the pods of nodes costs that are no candidates counts in full for the policy Balanced; 1.15.0
  forgets it each time it hears of a NodeClaim, until it hears of the Node.
- A pod's `NotIn` on a label that its node lacks does not become a promise of that node.
- An empty look is not remembered until something changes; it is repeated every 10 s.
"""
