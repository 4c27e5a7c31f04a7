"""Simulation of many services on shared node pools: replicas, pods with and without GPUs, nodes."""
