import contextlib


@contextlib.contextmanager
def kept(read, write):
    found = read()
    try:
        yield
    finally:
        write(found)


def flags():
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def reproducible(train, seed):
    with (
        kept(random.getstate, random.setstate),
        kept(np.random.get_state, np.random.set_state),
        kept(torch.get_rng_state, torch.set_rng_state),
        kept(torch.get_num_threads, torch.set_num_threads),
        kept(flags, lambda f: torch.use_deterministic_algorithms(f[0], warn_only=f[1])),
    ):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        return train()
