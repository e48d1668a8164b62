"""What PyTorch does to the simulated GPU: operators become launches, copies and waits, as CUDA would make them."""
