# seeds, and leaves everything as it set it: earns 0
def reproducible(train, seed):
    random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    return train()
