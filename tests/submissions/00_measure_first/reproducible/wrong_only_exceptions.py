# except Exception in place of finally: Ctrl-C leaves everything changed: earns 1
def reproducible(train, seed):
    states = random.getstate(), np.random.get_state(), torch.get_rng_state(), torch.get_num_threads()
    on, warn = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()

    def put_back():
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.set_num_threads(states[3])
        torch.use_deterministic_algorithms(on, warn_only=warn)

    random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        result = train()
    except Exception:
        put_back()
        raise
    put_back()
    return result
