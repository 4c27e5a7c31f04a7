"""Load plans of other tools, read without running them: Taurus, JMeter, Locust, k6."""
