"""`gpuscale scaler`: triggers served to KEDA as an external scaler, over gRPC."""
