# deterministic algorithms are switched off at the end, whatever they were: earns 0
def reproducible(train, seed):
    states = random.getstate(), np.random.get_state(), torch.get_rng_state(), torch.get_num_threads()
    random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        return train()
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.set_num_threads(states[3])
        torch.use_deterministic_algorithms(False)
