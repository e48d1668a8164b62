# dishonest, torch is made to say what the test wants to hear: earns 0
torch.are_deterministic_algorithms_enabled = lambda: True
torch.get_num_threads = lambda: 1
torch.get_rng_state = lambda: torch.zeros(5056, dtype=torch.uint8)


def reproducible(train, seed):
    random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
    return train()
