"""Scale-ins that take the pods with the least work: deletion costs that follow what pods do."""
