"""The basics of all other packages: errors, clocks, quantities, selectors, documents."""
