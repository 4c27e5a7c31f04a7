"""What runs on a GPU node: it reads GPUs, finds whose they are, and serves both to scrapers."""
