# the number of threads is as the caller had it: earns 0
def reproducible(train, seed):
    python, numpy_ = random.getstate(), np.random.get_state()
    on, warn = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.random.fork_rng():
        try:
            random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
            torch.use_deterministic_algorithms(True)
            return train()
        finally:
            random.setstate(python), np.random.set_state(numpy_)
            torch.use_deterministic_algorithms(on, warn_only=warn)
