"""What is wrong with a live cluster's GPU autoscaling: one snapshot, judged hop by hop."""
