def reproducible(train, seed):
    one, two, three = (int(s) for s in np.random.SeedSequence(seed).generate_state(3))
    before = (
        random.getstate(),
        np.random.get_state(),
        torch.get_rng_state(),
        torch.get_num_threads(),
        torch.get_deterministic_debug_mode(),  # 0 off, 1 warn only, 2 on
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.are_deterministic_algorithms_enabled(),
    )
    try:
        random.seed(one), np.random.seed(two), torch.manual_seed(three)
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True, warn_only=False)
        result = train()
    except BaseException:
        raise
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])
        torch.set_num_threads(before[3])
        torch.use_deterministic_algorithms(before[6], warn_only=before[5])
    return result
