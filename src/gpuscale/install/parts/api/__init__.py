"""The metrics API: what runs it, where its values come from, its rights, and what clients reach it by."""
