"""The run as torch.profiler would have written it, and torch.profiler's names for that."""
