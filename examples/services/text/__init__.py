"""A text endpoint as OpenAI's clients ask it, with vLLM's metrics."""
