"""Words that every other package uses: errors, clocks, quantities, selectors, documents."""
