"""The store on disk, so that a restart keeps its samples."""
