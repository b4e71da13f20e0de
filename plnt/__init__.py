"""plnt: roll out LLM inference servers on Kubernetes, driven by Temporal."""
