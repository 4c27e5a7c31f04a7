"""KEDA's ScaledObjects as its operator handles them: 0 <-> 1 here, 1 <-> N by the HPA that it makes. Pure."""
