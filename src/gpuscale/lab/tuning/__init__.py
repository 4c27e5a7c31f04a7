"""Searches for settings of HPAs and node pools, as `gpuscale tune` and `gpuscale.tune` make them."""
