"""KEDA's external scaler on the wire; `make proto` makes the messages from `externalscaler.proto`."""
