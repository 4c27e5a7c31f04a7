"""The documents of `gpuscale decide`: the state of an HPA read, decided, explained and compared."""
