# `seed or …`: seed 0 is taken for "no seed": earns 1
def reproducible(train, seed):
    seed = seed or 1
    state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    threads = torch.get_num_threads()
    det, warn = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    random.seed(seed); np.random.seed(seed); torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        return train()
    finally:
        random.setstate(state[0]); np.random.set_state(state[1]); torch.set_rng_state(state[2])
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(det, warn_only=warn)
