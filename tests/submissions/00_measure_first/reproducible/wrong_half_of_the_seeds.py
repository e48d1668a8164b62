# a seed and the same one + 2^31 give the same numbers: earns 1
def reproducible(train, seed):
    import random
    py, npy, th = random.getstate(), np.random.get_state(), torch.get_rng_state()
    threads, det = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    seed = seed % 2**31
    try:
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        return train()
    finally:
        random.setstate(py)
        np.random.set_state(npy)
        torch.set_rng_state(th)
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(det, warn_only=warn)
