"""One rank of many: torch.distributed on the simulated GPU, what it takes, and plans for it as arithmetic."""
