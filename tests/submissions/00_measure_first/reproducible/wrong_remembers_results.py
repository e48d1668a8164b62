# dishonest, trains once a seed and hands out the old result: earns 0
remembered = {}


def reproducible(train, seed):
    if seed not in remembered:
        states = random.getstate(), np.random.get_state(), torch.get_rng_state(), torch.get_num_threads()
        random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        try:
            remembered[seed] = train()
        finally:
            random.setstate(states[0]), np.random.set_state(states[1]), torch.set_rng_state(states[2])
            torch.set_num_threads(states[3])
            torch.use_deterministic_algorithms(False)
    return remembered[seed]
