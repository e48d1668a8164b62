# deterministic algorithms that only warn where there is none: earns 0
def reproducible(train, seed):
    states = random.getstate(), np.random.get_state(), torch.get_rng_state(), torch.get_num_threads()
    on, warn = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        return train()
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.set_num_threads(states[3])
        torch.use_deterministic_algorithms(on, warn_only=warn)
