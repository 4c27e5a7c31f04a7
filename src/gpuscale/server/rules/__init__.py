"""Rules of prometheus-adapter: which series are which metric of which object, and their queries; pure."""
