"""Load on a real NVIDIA GPU: busy for a share of the time, with memory held, through the driver alone."""
