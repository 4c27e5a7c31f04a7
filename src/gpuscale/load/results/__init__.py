"""Results of other load tools on the timeline: hey, GuideLLM, AIPerf, inference-perf."""
