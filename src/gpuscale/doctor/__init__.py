"""What is wrong with a live cluster's GPU autoscaling: looked at once, judged hop by hop, told whole."""
